import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { describe, test } from 'node:test';
import { readLine, writeLine } from '../json-lines/line.ts';
import { openTwoNodes } from './fixtures/two-nodes.ts';
import { TransferLibrary } from './index.ts';
import { transferProtocol } from './protocol.ts';

const region = { address: 4096, rkey: 1, sizeBytes: 10 };
const offer = { kind: 'buffer', id: 7 * 2 ** 32 + 1, region };
const hello = { millrace: 'transfer', version: 2 };

describe('what nodes say to each other', { timeout: 30_000 }, () => {
  test('another version, other fields, and numbers out of range are refused', () => {
    for (const [value, reason] of [
      [null, /transfer message is null; expected an object/],
      [{}, /its kind is missing/],
      [{ ...hello, millrace: 'control', node: 1 }, /its protocol is "control"/],
      [{ ...hello, version: 1, node: 1 }, /its version is 1; expected 2/],
      [{ ...hello, node: 0 }, /node is 0; expected 1 to/],
      [{ ...hello, node: 1, more: 1 }, /more is no field of it/],
      [{ kind: 'free', id: -1 }, /id is -1/],
      [{ ...offer, more: 1 }, /more is no field of it/],
      [{ ...offer, name: 7 }, /name is 7; expected 1 to 64 printable/],
      [{ ...offer, region: { ...region, address: 2 ** 53 - 1 } }, /region is an object; expected one that ends below/],
      [{ ...offer, region: { ...region, sizeBytes: 0 } }, /region is an object; expected one byte or more/],
      [{ ...offer, region: { ...region, rkey: 2 ** 32 } }, /region.rkey is 4294967296/],
    ] as const) {
      assert.throws(() => transferProtocol.decode(value), { code: 'MILLRACE_ERR_PROTOCOL', message: reason });
    }
  });

  test('a peer that breaks the protocol is told, and does not keep others away', async () => {
    await using library = await TransferLibrary.open({ nodeId: 1, device: 'soft-tcp', listen: {} });
    for (const line of [
      'GET / HTTP/1.1',
      '{}',
      `"${'x'.repeat(5000)}"`,
      '{"millrace":"transfer","version":2,"node":1}',
    ]) {
      const socket = await call(library);
      socket.write(`${line}\n`);
      await readLine(socket);
      assert.match(JSON.stringify(await readLine(socket)), /"kind":"bye"/);
      socket.destroy();
    }
    await using other = await TransferLibrary.open({ nodeId: 2, device: 'soft-tcp' });
    const address = library.address ?? { host: '', port: 0 };
    await other.connect(address);
    await using twin = await TransferLibrary.open({ nodeId: 2, device: 'soft-tcp' });
    await assert.rejects(twin.connect(address), /node 2 is connected already/);
    await assert.rejects(twin.connect({ host: '127.0.0.1', port: 1 }), /ECONNREFUSED/);
  });

  for (const [name, lines, reason] of [
    ['tells of a buffer that is not its own', [{ ...offer, id: 2 ** 32 + 1 }], /which is not its own/],
    ['tells of a buffer twice', [offer, offer], /offered buffer 30064771073 twice/],
    [
      'frees what it does not have',
      [{ kind: 'free', id: offer.id }],
      /freed buffer 30064771073, which it does not have/,
    ],
    ['gives back what nobody asked for', [{ kind: 'freed', id: 2 ** 32 + 1 }], /which nobody asked for/],
    ['says hello again', [{ ...hello, node: 7 }], /it sent hello, where buffer, free, freed or bye is expected/],
  ] as const) {
    test(`a connected node that ${name} is cut off`, async () => {
      await using library = await TransferLibrary.open({ nodeId: 1, device: 'soft-tcp', listen: {} });
      const socket = await call(library);
      await pretend(socket);
      for (const line of lines) writeLine(socket, line);
      let said = '';
      while (!said.startsWith('{"kind":"bye"')) said = JSON.stringify(await readLine(socket));
      assert.match(said, reason);
      assert.equal(library.node(7), undefined);
      socket.destroy();
    });
  }

  test('a node that does not give back a buffer in time is cut off, and the buffer is freed', async () => {
    await using library = await TransferLibrary.open({ nodeId: 1, device: 'soft-tcp', listen: {}, freeTimeoutMs: 50 });
    const buffer = library.allocate({ sizeBytes: 10 });
    const socket = await call(library);
    await pretend(socket);
    assert.match(JSON.stringify(await readLine(socket)), /"kind":"buffer"/);
    await buffer.free();
    assert.deepEqual(await readLine(socket), { kind: 'free', id: buffer.id });
    assert.match(JSON.stringify(await readLine(socket)), /did not give back buffer/);
    socket.destroy();
  });

  test('a node is not told of what it cannot use: buffers that are being freed', async () => {
    await using nodes = await openTwoNodes('tcp');
    const buffer = nodes.right.allocate({ sizeBytes: 1 });
    await buffer.free();
    assert.deepEqual(nodes.right.buffers, []);
  });
});

async function call(library: TransferLibrary): Promise<Socket> {
  const socket = connect(library.address ?? { host: '', port: 0 });
  await once(socket, 'connect');
  return socket;
}

/** Node 7, by hand, up to the point where both are connected. Its QP leads nowhere. */
async function pretend(socket: Socket): Promise<void> {
  writeLine(socket, { millrace: 'transfer', version: 2, node: 7 });
  await readLine(socket);
  writeLine(socket, { kind: 'welcome', node: 1 });
  await readLine(socket);
  writeLine(socket, {
    millrace: 'qp',
    version: 2,
    qpNumber: 1,
    psn: 0,
    gid: '::ffff:127.0.0.1',
    lid: 1,
    mtu: 1024,
    regions: {},
  });
  await readLine(socket);
  writeLine(socket, { kind: 'ready', qpNumber: 1 });
  await readLine(socket);
}
