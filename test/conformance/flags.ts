// What the flags of a request promise: inline, unsignalled, fence, solicited; and the order that
// holds without any.

import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { sendFlags } from '../../src/verbs/index.ts';
import { connectPair } from './connect.ts';
import { type ConformanceTarget, conforms } from './target.ts';
import { reap, settle, until } from './wait.ts';

export function flags(target: ConformanceTarget): void {
  describe(`${target.name}: flags and order`, () => {
    conforms(
      target,
      'inline data longer than was agreed is refused',
      { left: { maxInlineBytes: 16 } },
      ({ left, right }) => {
        const post = (): unknown =>
          left.tryPost((batch) =>
            batch.write(1, right.mr.address, right.mr.rkey, sendFlags.inline).sge(...left.at(0, 17)),
          );
        assert.throws(post, { code: 'MILLRACE_ERR_USAGE' });
      },
    );

    conforms(
      target,
      'a wrong row is refused: those before it are taken, those after it are not',
      {},
      async ({ left, right }) => {
        const long = left.qp.maxInlineBytes + 1;
        const post = (): unknown =>
          left.tryPost((batch) => {
            batch.write(1, right.mr.address, right.mr.rkey).sge(...left.at(0, 8));
            batch.write(2, right.mr.address, right.mr.rkey, sendFlags.inline).sge(...left.at(0, long));
            batch.write(3, right.mr.address, right.mr.rkey).sge(...left.at(0, 8));
          });
        assert.throws(post, { code: 'MILLRACE_ERR_USAGE' });
        assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
        left.post((batch) => batch.write(4, right.mr.address, right.mr.rkey).sge(...left.at(0, 8)));
        assert.deepEqual(await left.sentStatuses(), ['4:SUCCESS']);
      },
    );

    conforms(target, 'more scatter-gather entries than the QP has are refused', { left: { maxSge: 2 } }, ({ left }) => {
      const post = (): unknown =>
        left.tryPost((batch) =>
          batch
            .send(1)
            .sge(...left.at(0, 1))
            .sge(...left.at(0, 1))
            .sge(...left.at(0, 1)),
        );
      assert.throws(post, { code: 'MILLRACE_ERR_USAGE' });
    });

    conforms(target, 'inline memory may change as soon as post returns', {}, async ({ left, right }) => {
      const { inline, signaled } = sendFlags;
      for (let index = 0; index < 8; index++) {
        right.receive(100 + index, 1024 + index * 16, 16);
        left.put(0, `inline ${index}`);
        left.post((batch) => {
          batch.write(index, right.mr.address + index * 16, right.mr.rkey, inline).sge(...left.at(0, 8));
          batch
            .send(index, inline | signaled)
            .sge(...left.at(0, 4))
            .sge(...left.at(4, 4));
        });
        left.put(0, 'xxxxxxxx');
      }
      await right.received(8);
      await left.sent(8);
      for (let index = 0; index < 8; index++) {
        assert.deepEqual(
          [right.text(index * 16, 8), right.text(1024 + index * 16, 8)],
          [`inline ${index}`, `inline ${index}`],
        );
      }
    });

    conforms(target, 'inline data needs no key', {}, async ({ left, right }) => {
      right.receive(7, 0, 16);
      left.put(0, 'no key');
      left.post((batch) => batch.send(1, sendFlags.inline | sendFlags.signaled).sge(0, left.mr.address, 6));
      assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
      await right.received();
      assert.equal(right.text(0, 6), 'no key');
    });

    conforms(target, 'only signalled requests complete when all goes well', {}, async ({ left, right }) => {
      left.post((batch) => {
        for (let index = 1; index <= 20; index++) {
          const flag = index % 5 === 0 ? sendFlags.signaled : 0;
          batch.write(index, right.mr.address + index, right.mr.rkey, flag).sge(...left.at(index, 1));
        }
      });
      assert.deepEqual(await left.sentStatuses(4), ['5:SUCCESS', '10:SUCCESS', '15:SUCCESS', '20:SUCCESS']);
      assert.deepEqual(await settle(left.sendCq, 20), []);
    });

    conforms(target, 'a QP made to signal all does', { left: { signalAll: true } }, async ({ left, right }) => {
      left.post((batch) => {
        batch.write(1, right.mr.address, right.mr.rkey, 0).sge(...left.at(0, 8));
        batch.read(2, right.mr.address, right.mr.rkey, 0).sge(...left.at(0, 8));
      });
      assert.deepEqual(await left.sentStatuses(2), ['1:SUCCESS', '2:SUCCESS']);
    });

    conforms(
      target,
      'a fenced request sees what reads before it have brought',
      { needs: 'fencedRetry' },
      async ({ left, right }) => {
        const rounds = 16;
        for (let index = 0; index < rounds; index++) {
          right.put(index * 16, `round ${index}`.padEnd(8));
          right.receive(100 + index, 4096 + index * 16, 16);
        }
        left.post((batch) => {
          for (let index = 0; index < rounds; index++) {
            batch.read(index, right.mr.address + index * 16, right.mr.rkey, 0).sge(...left.at(0, 8));
            batch.send(index, sendFlags.fence | sendFlags.signaled).sge(...left.at(0, 8));
          }
        });
        await right.received(rounds);
        await left.sent(rounds);
        for (let index = 0; index < rounds; index++) {
          assert.equal(right.text(4096 + index * 16, 8), `round ${index}`.padEnd(8));
        }
      },
    );

    conforms(target, 'a SEND arrives after the WRITEs before it', {}, async ({ left, right }) => {
      const rounds = 50;
      for (let index = 1; index <= rounds; index++) {
        right.receive(index, 60_000, 4);
        left.bytes(0, 8192).fill(index);
        left.post((batch) => {
          batch.write(0, right.mr.address, right.mr.rkey, 0).sge(...left.at(0, 8192));
          batch.send(index).sge(...left.at(0, 1));
        });
        await until('the message', () => reap(right.receiveCq).length > 0);
        assert.deepEqual([right.bytes(0, 1)[0], right.bytes(8191, 1)[0]], [index, index]);
        await left.sent();
      }
    });

    conforms(target, 'a READ sees the WRITEs before it', {}, async ({ left, right }) => {
      left.put(0, 'one');
      left.put(8, 'two');
      left.post((batch) => {
        batch.write(1, right.mr.address, right.mr.rkey, 0).sge(...left.at(0, 3));
        batch.read(2, right.mr.address, right.mr.rkey, 0).sge(...left.at(100, 3));
        batch.write(3, right.mr.address, right.mr.rkey, sendFlags.fence).sge(...left.at(8, 3));
        batch.read(4, right.mr.address, right.mr.rkey).sge(...left.at(200, 3));
      });
      assert.deepEqual(await left.sentStatuses(), ['4:SUCCESS']);
      assert.deepEqual([left.text(100, 3), left.text(200, 3)], ['one', 'two']);
    });

    conforms(target, 'both directions carry at once', {}, async ({ left, right }) => {
      const rounds = 40;
      const order = Array.from({ length: rounds }, (_, index) => index);
      for (const [from, to] of [
        [left, right],
        [right, left],
      ] as const) {
        from.bytes(0, 64).fill(from === left ? 1 : 2);
        for (const index of order) to.receive(index, 4096 + index * 64, 64);
      }
      for (const index of order) {
        for (const [from, to] of [
          [left, right],
          [right, left],
        ] as const) {
          from.post((batch) => {
            batch.write(index, to.mr.address + 32_768 + index * 64, to.mr.rkey, 0).sge(...from.at(0, 64));
            batch.send(index).sge(...from.at(0, 64));
          });
        }
      }
      for (const end of [left, right]) {
        const other = end === left ? 2 : 1;
        assert.deepEqual(
          (await end.received(rounds)).map(({ wrId }) => wrId),
          order,
        );
        assert.deepEqual(
          (await end.sent(rounds)).map(({ wrId }) => wrId),
          order,
        );
        assert.ok(end.bytes(4096, rounds * 64).every((byte) => byte === other));
        assert.ok(end.bytes(32_768, rounds * 64).every((byte) => byte === other));
      }
    });

    conforms(target, 'two QPs of one device can talk to each other', {}, async (rig) => {
      const { left } = rig;
      const [one, two] = [left.createQp(), left.createQp()];
      connectPair(one, two, rig.connectOptions('left'));
      left.put(0, 'to myself');
      left.receive(1, 100, 16, two);
      left.post((batch) => {
        batch.send(2).sge(...left.at(0, 9));
        batch.write(3, left.mr.address + 200, left.mr.rkey).sge(...left.at(0, 9));
      }, one);
      assert.deepEqual(await left.sentStatuses(2), ['2:SUCCESS', '3:SUCCESS']);
      assert.deepEqual(await left.receivedStatuses(), ['1:SUCCESS']);
      assert.deepEqual([left.text(100, 9), left.text(200, 9)], ['to myself', 'to myself']);
    });
  });
}
