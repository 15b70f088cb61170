import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { UsageError } from '../errors.ts';
import { readLine, writeLine } from '../json-lines/line.ts';
import { openTwoNodes } from './fixtures/two-nodes.ts';
import { TransferLibrary } from './index.ts';
import { bodyOf, isBufferName, type Message, messageOf } from './protocol.ts';

const card = { id: 7 * 2 ** 32 + 1, address: 4096, rkey: 1, sizeBytes: 10 };

const messages: fc.Arbitrary<Message> = fc.oneof(
  fc.record({ kind: fc.constantFrom('hello' as const, 'welcome' as const), node: fc.integer({ min: 1, max: 99 }) }),
  fc.record({ kind: fc.constantFrom('free' as const, 'freed' as const), id: fc.integer({ min: 1, max: 2 ** 31 }) }),
  fc.record({ kind: fc.constant('bye' as const), reason: fc.stringMatching(/^[\x20-\x7e]{0,200}$/) }),
  fc.record({ sizeBytes: fc.integer({ min: 1 }), name: fc.string() }).map(({ sizeBytes, name }) => ({
    kind: 'buffer' as const,
    card: { ...card, sizeBytes, ...(isBufferName(name) && { name }) },
  })),
);

describe('what nodes say to each other', { timeout: 30_000 }, () => {
  test('another version, other parts, and numbers out of range are refused', () => {
    for (const [value, reason] of [
      [null, /not an object/],
      [[], /not an object/],
      [{}, /unknown kind/],
      [{ millrace: 'control', version: 1, node: 1 }, /another protocol/],
      [{ millrace: 'transfer', version: 2, node: 1 }, /version 2; this side speaks 1/],
      [{ millrace: 'transfer', version: 1, node: 0 }, /node/],
      [{ millrace: 'transfer', version: 1, node: 1, more: 1 }, /too many parts/],
      [{ free: 1, freed: 1 }, /too many parts/],
      [{ free: -1 }, /free/],
      [{ buffer: { ...card, more: 1 } }, /too many parts/],
      [{ buffer: { ...card, name: 7 } }, /name/],
      [{ buffer: { ...card, address: 2 ** 53 - 1 } }, /past 2\^53/],
      [{ buffer: { ...card, sizeBytes: 0 } }, /sizeBytes/],
      [{ buffer: { ...card, rkey: 2 ** 32 } }, /rkey/],
    ] as const) {
      assert.throws(() => messageOf(value), { code: 'MILLRACE_ERR_USAGE', message: reason }, JSON.stringify(value));
    }
  });

  test('every message survives the way, and anything else is a UsageError', () => {
    fc.assert(
      fc.property(messages, (message) =>
        assert.deepEqual(messageOf(throughJson(bodyOf(message))), throughJson(message)),
      ),
    );
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        try {
          messageOf(value);
        } catch (error) {
          assert.ok(error instanceof UsageError);
        }
      }),
    );
  });

  test('a stranger who talks nonsense is told, and does not keep others away', async () => {
    await using library = await TransferLibrary.open({ nodeId: 1, device: 'soft-tcp', listen: {} });
    for (const line of [
      'GET / HTTP/1.1',
      '{}',
      `"${'x'.repeat(5000)}"`,
      '{"millrace":"transfer","version":1,"node":1}',
    ]) {
      const socket = await call(library);
      socket.write(`${line}\n`);
      await readLine(socket);
      assert.match(JSON.stringify(await readLine(socket)), /^\{"bye":/);
      socket.destroy();
    }
    await using other = await TransferLibrary.open({ nodeId: 2, device: 'soft-tcp' });
    const address = library.address ?? { host: '', port: 0 };
    await other.connect(address);
    await using twin = await TransferLibrary.open({ nodeId: 2, device: 'soft-tcp' });
    await assert.rejects(twin.connect(address), /node 2 is connected already/);
    await assert.rejects(twin.connect({ host: '127.0.0.1', port: 1 }), /ECONNREFUSED/);
  });

  for (const [name, lines] of [
    ['tells of a buffer of somebody else', [{ buffer: { ...card, id: 2 ** 32 + 1 } }]],
    ['tells of a buffer twice', [{ buffer: card }, { buffer: card }]],
    ['frees what it never had', [{ free: 7 * 2 ** 32 + 9 }]],
    ['gives back what nobody asked for', [{ freed: 2 ** 32 + 1 }]],
    ['says hello again', [{ millrace: 'transfer', version: 1, node: 7 }]],
  ] as const) {
    test(`a connected node that ${name} is cut off`, async () => {
      await using library = await TransferLibrary.open({ nodeId: 1, device: 'soft-tcp', listen: {} });
      const socket = await call(library);
      await pretend(socket);
      for (const line of lines) writeLine(socket, line);
      for (;;) {
        const said = JSON.stringify(await readLine(socket));
        if (said.startsWith('{"bye":')) break;
      }
      assert.equal(library.node(7), undefined);
      socket.destroy();
    });
  }

  test('a node that does not give back a buffer in time is cut off, and the buffer is freed', async () => {
    await using library = await TransferLibrary.open({ nodeId: 1, device: 'soft-tcp', listen: {}, freeTimeoutMs: 50 });
    const buffer = library.allocate({ sizeBytes: 10 });
    const socket = await call(library);
    await pretend(socket);
    assert.match(JSON.stringify(await readLine(socket)), /^\{"buffer":/);
    await buffer.free();
    assert.deepEqual(await readLine(socket), { free: buffer.id });
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

function throughJson(value: object): unknown {
  return JSON.parse(JSON.stringify(value));
}

async function call(library: TransferLibrary): Promise<Socket> {
  const socket = connect(library.address ?? { host: '', port: 0 });
  await once(socket, 'connect');
  return socket;
}

/** Node 7, by hand, up to the point where both are connected. Its QP leads nowhere. */
async function pretend(socket: Socket): Promise<void> {
  writeLine(socket, { millrace: 'transfer', version: 1, node: 7 });
  await readLine(socket);
  writeLine(socket, { welcome: 1 });
  await readLine(socket);
  writeLine(socket, { v: 1, qpNumber: 1, psn: 0, gid: '::ffff:127.0.0.1', lid: 1, mtu: 1024, regions: {} });
  await readLine(socket);
  writeLine(socket, { ready: 1 });
  await readLine(socket);
}
