// Remote memory mapped in place, and the soft devices by name.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Rig } from '../../../test/conformance/rig.ts';
import { turn, until } from '../../../test/conformance/wait.ts';
import { access, listDevices, openDevice } from '../index.ts';
import { openSoftPair } from './fixtures/soft-pair.ts';

const permission = { code: 'MILLRACE_ERR_PERMISSION' };

async function meet({ left, right }: Rig): Promise<void> {
  left.post((batch) => batch.write(0, right.mr.address, right.mr.rkey).sge(...left.at(0, 8)));
  assert.deepEqual(await left.sentStatuses(), ['0:SUCCESS']);
}

describe('remote memory mapped here', () => {
  test('the tcp wire refuses to map', async () => {
    await using pair = openSoftPair('tcp');
    using rig = Rig.build(pair);
    await meet(rig);
    const { left, right } = rig;
    await assert.rejects(left.qp.mapRemote(right.mr.rkey, right.mr.address, 8), { code: 'MILLRACE_ERR_UNSUPPORTED' });
  });

  test('a key that does not exist, a range outside and a region for reading are refused', async () => {
    await using pair = openSoftPair('shm');
    using rig = Rig.build(pair);
    await meet(rig);
    const { left, right } = rig;
    const { address, rkey, sizeBytes } = right.mr;
    await assert.rejects(left.qp.mapRemote((rkey ^ 1) >>> 0, address, 8), permission);
    await assert.rejects(left.qp.mapRemote(rkey, address + sizeBytes - 4, 8), permission);
    await assert.rejects(left.qp.mapRemote(rkey, address - 8, 8), permission);
    const readable = right.pd.allocate({ sizeBytes: 4096, access: access.localWrite | access.remoteRead });
    await assert.rejects(left.qp.mapRemote(readable.rkey, readable.address, 8), permission);
    const foreign = right.device.createPd().allocate({ sizeBytes: 4096, access: right.mr.access });
    await assert.rejects(left.qp.mapRemote(foreign.rkey, foreign.address, 8), permission);
    assert.equal(left.qp.state, 'RTS');
  });

  test('what is written into a window is in the memory of the peer', async () => {
    await using pair = openSoftPair('shm');
    using rig = Rig.build(pair);
    await meet(rig);
    const { left, right } = rig;
    using window = await left.qp.mapRemote(right.mr.rkey, right.mr.address + 4096, 64);
    assert.deepEqual([window.sizeBytes, window.isValid], [64, true]);
    new Uint8Array(window.memory.buffer, window.offset, 64).fill(9);
    assert.ok(right.bytes(4096, 64).every((byte) => byte === 9));
    assert.deepEqual([right.bytes(4095, 1)[0], right.bytes(4160, 1)[0]], [0, 0]);
  });

  test('a window is no longer valid once its key is revoked or its peer is gone', async () => {
    await using pair = openSoftPair('shm');
    using rig = Rig.build(pair);
    await meet(rig);
    const { left, right } = rig;
    const key = right.mr.grant(right.qp);
    using window = await left.qp.mapRemote(key, right.mr.address, 64);
    right.mr.revoke(key);
    assert.equal(window.isValid, false);
    await assert.rejects(left.qp.mapRemote(key, right.mr.address, 64), permission);
    using other = await left.qp.mapRemote(right.mr.rkey, right.mr.address, 64);
    assert.equal(other.isValid, true);
    right.device.close();
    await until('the end of the peer', () => left.qp.state === 'ERR');
    assert.equal(other.isValid, false);
    await turn();
  });
});

describe('the soft provider', () => {
  test('an unknown device is refused, with a suggestion', () => {
    assert.throws(() => openDevice('soft-shn'), /soft-shm/);
  });

  test('all wires are listed, and open by name', () => {
    const names = listDevices().map(({ name }) => name);
    assert.ok(names.includes('soft-shm') && names.includes('soft-tcp') && names.includes('soft-roce'));
    using device = openDevice('soft-tcp');
    assert.equal(device.info.transport, 'tcp');
  });

  test('datagram QPs are refused where there are no datagrams', async () => {
    await using pair = openSoftPair('tcp');
    const sendCq = pair.left.createCq();
    assert.throws(() => pair.left.createPd().createQp({ type: 'UD', sendCq }), { code: 'MILLRACE_ERR_UNSUPPORTED' });
  });
});
