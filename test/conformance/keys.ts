// Keys to memory: which peers may use them, for what, and until when.

import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { access, type Qp } from '../../src/verbs/index.ts';
import type { Rig } from './rig.ts';
import { type ConformanceTarget, conforms } from './target.ts';
import { reap, turn } from './wait.ts';

const usage = { code: 'MILLRACE_ERR_USAGE' };
const { localWrite, remoteRead, remoteWrite } = access;

async function write(rig: Rig, rkey: number, qp: Qp = rig.left.qp): Promise<string | undefined> {
  const { left, right } = rig;
  left.post((batch) => batch.write(1, right.mr.address, rkey).sge(...left.at(0, 8)), qp);
  return (await left.sent())[0]?.status;
}

/** A device may cache a key over several requests, and must drop it all the same. */
async function warmUp(rig: Rig, rkey: number, qp: Qp = rig.left.qp): Promise<void> {
  for (let times = 0; times < 5; times++) {
    assert.equal(await write(rig, rkey, qp), 'SUCCESS');
    for (let turns = 0; turns < 5; turns++) await turn();
  }
}

async function read(rig: Rig, rkey: number, qp: Qp = rig.left.qp): Promise<string | undefined> {
  const { left, right } = rig;
  left.post((batch) => batch.read(1, right.mr.address, rkey).sge(...left.at(0, 8)), qp);
  return (await left.sent())[0]?.status;
}

export function keys(target: ConformanceTarget): void {
  describe(`${target.name}: regions and their keys`, () => {
    conforms(target, 'a region must be inside its memory, and its access make sense', {}, ({ left }) => {
      const { memory } = left.mr;
      const size = memory.sizeBytes;
      for (const options of [
        { offset: -1 },
        { offset: size },
        { offset: 1, sizeBytes: size },
        { sizeBytes: 0 },
        { sizeBytes: 1.5 },
      ]) {
        assert.throws(() => left.pd.register(memory, options), usage, JSON.stringify(options));
      }
      assert.throws(() => left.pd.register(memory, { access: remoteWrite }), usage);
      assert.throws(() => left.pd.register(memory, { access: 1 << 20 }), usage);
      assert.throws(() => left.pd.allocate({ sizeBytes: 0 }), usage);
    });

    conforms(target, 'memory that was given survives its region; memory of its own does not', {}, ({ left }) => {
      const given = left.pd.register(left.mr.memory);
      given.close();
      assert.equal(left.mr.memory.isClosed, false);
      const own = left.pd.allocate({ sizeBytes: 4096 });
      own.close();
      assert.equal(own.memory.isClosed, true);
      assert.equal(own.bytes.length, 0);
    });

    conforms(target, 'two regions of one memory have keys of their own', {}, async (rig) => {
      const { right } = rig;
      const second = right.pd.register(right.mr.memory, { access: localWrite | remoteRead });
      assert.notEqual(second.rkey, right.mr.rkey);
      assert.equal(await write(rig, right.mr.rkey), 'SUCCESS');
      rig.left.post((batch) => batch.write(1, second.address, second.rkey).sge(...rig.left.at(0, 8)));
      assert.equal((await rig.left.sent())[0]?.status, 'REM_ACCESS_ERR');
    });

    conforms(target, 'a closed region refuses its peers', {}, async (rig) => {
      const { left, right } = rig;
      const region = right.pd.allocate({ sizeBytes: 4096, access: localWrite | remoteWrite });
      const { address, rkey } = region;
      const post = (wrId: number): void => left.post((batch) => batch.write(wrId, address, rkey).sge(...left.at(0, 8)));
      for (let times = 0; times < 10; times++) {
        post(1);
        assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
        await turn();
      }
      region.close();
      post(2);
      assert.deepEqual(await left.sentStatuses(), ['2:REM_ACCESS_ERR']);
    });

    conforms(
      target,
      'a region closed while a message for it waits fails the message, not the process',
      { needs: 'receiveStatus' },
      async ({ left, right }) => {
        const region = right.pd.allocate({ sizeBytes: 4096 });
        right.postReceives((batch) => batch.receive(1).sge(region.lkey, region.address, 64));
        region.close();
        left.post((batch) => batch.send(2).sge(...left.at(0, 8)));
        assert.deepEqual(await left.sentStatuses(), ['2:REM_OP_ERR']);
        assert.deepEqual(await right.receivedStatuses(), ['1:LOC_PROT_ERR']);
      },
    );

    conforms(
      target,
      'a grant is refused for more than the region allows, or to a QP of another domain',
      { needs: 'grants' },
      ({ right }) => {
        const region = right.pd.allocate({ sizeBytes: 4096, access: localWrite | remoteRead });
        assert.throws(() => region.grant(right.qp, localWrite | remoteWrite), usage);
        const pd = right.device.createPd();
        const otherQp = pd.createQp({ sendCq: right.sendCq });
        assert.throws(() => region.grant(otherQp), usage);
      },
    );

    conforms(target, 'a granted key opens what was granted, and no more', { needs: 'grants' }, async (rig) => {
      const key = rig.right.mr.grant(rig.right.qp, localWrite | remoteRead);
      assert.notEqual(key, rig.right.mr.rkey);
      assert.equal(await read(rig, key), 'SUCCESS');
      assert.equal(await write(rig, key), 'REM_ACCESS_ERR');
    });

    conforms(target, 'a granted key is worth nothing to another peer', { needs: 'boundGrants' }, async (rig) => {
      const { left, right } = rig;
      const [otherLeft, otherRight] = [left.createQp(), right.createQp()];
      rig.connect(otherLeft, otherRight);
      const key = right.mr.grant(right.qp);
      await warmUp(rig, key);
      assert.equal(await write(rig, key, otherLeft), 'REM_ACCESS_ERR');
      assert.equal(otherLeft.state, 'ERR');
      assert.equal(await write(rig, key), 'SUCCESS');
    });

    conforms(target, 'a revoked key opens nothing, and other keys stay', { needs: 'grants' }, async (rig) => {
      const { left, right } = rig;
      const [otherLeft, otherRight] = [left.createQp(), right.createQp()];
      rig.connect(otherLeft, otherRight);
      const key = right.mr.grant(right.qp);
      const otherKey = right.mr.grant(otherRight);
      await warmUp(rig, key);
      await warmUp(rig, otherKey, otherLeft);
      right.mr.revoke(key);
      assert.equal(await write(rig, key), 'REM_ACCESS_ERR');
      assert.equal(await write(rig, otherKey, otherLeft), 'SUCCESS');
      assert.equal(await write(rig, right.mr.rkey, otherLeft), 'SUCCESS');
    });

    conforms(target, 'a key revoked while a device gets to know it opens nothing', { needs: 'grants' }, async (rig) => {
      const { left, right } = rig;
      await warmUp(rig, right.mr.rkey);
      const key = right.mr.grant(right.qp);
      left.post((batch) => batch.write(1, right.mr.address, key).sge(...left.at(0, 8)));
      // Only the right end moves on: what it answers, the left end has not seen when the key is
      // revoked.
      for (let polls = 0; polls < 200; polls++) reap(right.receiveCq);
      right.mr.revoke(key);
      assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
      for (let turns = 0; turns < 10; turns++) await turn();
      assert.equal(await write(rig, key), 'REM_ACCESS_ERR');
    });

    const size = 4 * 1024 * 1024;
    const big = { left: { sizeBytes: size }, right: { sizeBytes: size }, needs: 'bigMessages' } as const;
    for (const which of ['left', 'right'] as const) {
      for (const kind of ['SEND', 'WRITE', 'READ'] as const) {
        const name = `${which === 'left' ? 'the requester' : 'the responder'} may close its region in the middle of a ${kind}`;
        conforms(target, name, big, async (rig) => {
          const { left, right } = rig;
          const [otherLeft, otherRight] = [left.createQp(), right.createQp()];
          rig.connect(otherLeft, otherRight);
          const bystander = right.pd.allocate({ sizeBytes: 4096, access: right.mr.access });
          const kept = left.pd.allocate({ sizeBytes: 4096 });
          right.receive(1, 0, size);
          left.post((batch) => {
            if (kind === 'SEND') batch.send(2);
            else if (kind === 'WRITE') batch.write(2, right.mr.address, right.mr.rkey);
            else batch.read(2, right.mr.address, right.mr.rkey);
            batch.sge(...left.at(0, size));
          });
          await turn();
          rig[which].mr.close();
          // It may have been over by then. If not, it fails; how is not said anywhere.
          const [completion] = await left.sent();
          assert.equal(completion?.wrId, 2);
          left.post(
            (batch) => batch.write(3, bystander.address, bystander.rkey).sge(kept.lkey, kept.address, 8),
            otherLeft,
          );
          assert.deepEqual(await left.sentStatuses(), ['3:SUCCESS']);
        });
      }
    }

    conforms(target, 'closing a region takes its granted keys with it', { needs: 'grants' }, async (rig) => {
      const { left, right } = rig;
      const region = right.pd.allocate({ sizeBytes: 4096, access: localWrite | remoteWrite });
      const key = region.grant(right.qp);
      const { address } = region;
      region.close();
      left.post((batch) => batch.write(1, address, key).sge(...left.at(0, 8)));
      assert.deepEqual(await left.sentStatuses(), ['1:REM_ACCESS_ERR']);
    });
  });
}
