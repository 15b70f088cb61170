// Every operation, on memory of several shapes and sizes, and what its completions say.

import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { access } from '../../src/verbs/index.ts';
import type { End } from './rig.ts';
import { type ConformanceTarget, conforms } from './target.ts';
import { settle } from './wait.ts';

/** Bytes that differ from place to place, and from one seed to the next. */
function pattern(bytes: Uint8Array, seed: number): void {
  for (let index = 0; index < bytes.length; index++)
    bytes[index] = (index * 31 + (index >>> 8) * 7 + seed * 101) & 0xff;
}

function counter(end: End, offset: number): bigint {
  return new DataView(end.mr.bytes.buffer, end.mr.bytes.byteOffset + offset, 8).getBigUint64(0, true);
}

function setCounter(end: End, offset: number, value: bigint): void {
  new DataView(end.mr.bytes.buffer, end.mr.bytes.byteOffset + offset, 8).setBigUint64(0, value, true);
}

export function opcodes(target: ConformanceTarget): void {
  describe(`${target.name}: operations`, () => {
    conforms(target, 'SEND lands in the posted receive', {}, async ({ left, right }) => {
      right.receive(7, 100, 64);
      const length = left.put(0, 'over the mill');
      left.post((batch) => batch.send(1).sge(...left.at(0, length)));
      const [received] = await right.received();
      const [sent] = await left.sent();
      assert.deepEqual(received, {
        wrId: 7,
        status: 'SUCCESS',
        opcode: 'receive',
        byteLength: length,
        qpNumber: right.qp.number,
      });
      assert.deepEqual(
        [sent?.wrId, sent?.status, sent?.opcode, sent?.qpNumber],
        [1, 'SUCCESS', 'send', left.qp.number],
      );
      assert.equal(right.text(100, length), 'over the mill');
      assert.equal(right.bytes(100 + length, 1)[0], 0);
    });

    conforms(target, 'SEND_WITH_IMM brings its four bytes along', {}, async ({ left, right }) => {
      right.receive(7, 0, 64);
      right.receive(8, 64, 64);
      left.post((batch) => {
        batch.sendWithImm(1, 0xdead_beef).sge(...left.at(0, 4));
        batch.sendWithImm(2, 0);
      });
      const [first, second] = await right.received(2);
      assert.deepEqual([first?.opcode, first?.imm, first?.byteLength], ['receive', 0xdead_beef, 4]);
      assert.deepEqual([second?.opcode, second?.imm, second?.byteLength], ['receive', 0, 0]);
      assert.deepEqual(await left.sentStatuses(2), ['1:SUCCESS', '2:SUCCESS']);
    });

    conforms(target, 'WRITE changes remote memory and tells nobody there', {}, async ({ left, right }) => {
      right.receive(7, 0, 8);
      const length = left.put(0, 'written');
      left.post((batch) => batch.write(1, right.mr.address + 500, right.mr.rkey).sge(...left.at(0, length)));
      const [sent] = await left.sent();
      assert.deepEqual([sent?.wrId, sent?.status, sent?.opcode], [1, 'SUCCESS', 'write']);
      assert.equal(right.text(500, length), 'written');
      assert.deepEqual([right.bytes(499, 1)[0], right.bytes(500 + length, 1)[0]], [0, 0]);
      assert.deepEqual(await settle(right.receiveCq, 20), []);
    });

    conforms(target, 'WRITE_WITH_IMM changes memory and uses up a receive for its imm', {}, async ({ left, right }) => {
      // The receive needs no memory: the data goes where the request says.
      right.postReceives((batch) => batch.receive(7));
      const length = left.put(0, 'written');
      left.post((batch) => batch.writeWithImm(1, right.mr.address + 8, right.mr.rkey, 42).sge(...left.at(0, length)));
      const [received] = await right.received();
      assert.deepEqual(
        [received?.wrId, received?.status, received?.opcode, received?.imm, received?.byteLength],
        [7, 'SUCCESS', 'receiveWriteWithImm', 42, length],
      );
      assert.equal(right.text(8, length), 'written');
      const [sent] = await left.sent();
      assert.deepEqual([sent?.status, sent?.opcode], ['SUCCESS', 'write']);
    });

    conforms(target, 'READ fetches remote memory', {}, async ({ left, right }) => {
      const length = right.put(300, 'fetched');
      left.post((batch) => batch.read(1, right.mr.address + 300, right.mr.rkey).sge(...left.at(50, length)));
      const [sent] = await left.sent();
      assert.deepEqual([sent?.wrId, sent?.status, sent?.opcode, sent?.byteLength], [1, 'SUCCESS', 'read', length]);
      assert.equal(left.text(50, length), 'fetched');
    });

    conforms(
      target,
      'FETCH_ADD adds 64 bits and returns what was there',
      { needs: 'atomics' },
      async ({ left, right }) => {
        setCounter(right, 8, 0xffff_ffffn);
        left.post((batch) => {
          batch.fetchAdd(1, right.mr.address + 8, right.mr.rkey, 1).sge(...left.at(0, 8));
          batch.fetchAdd(2, right.mr.address + 8, right.mr.rkey, 0xffff_ffff, 0xffff_ffff).sge(...left.at(8, 8));
        });
        const [first, second] = await left.sent(2);
        assert.deepEqual([first?.status, first?.opcode, first?.byteLength], ['SUCCESS', 'fetchAdd', 8]);
        assert.equal(second?.status, 'SUCCESS');
        assert.deepEqual([counter(left, 0), counter(left, 8)], [0xffff_ffffn, 0x1_0000_0000n]);
        assert.equal(counter(right, 8), 0xffff_ffffn);
      },
    );

    conforms(
      target,
      'CMP_SWAP stores only where it finds what it expects',
      { needs: 'atomics' },
      async ({ left, right }) => {
        setCounter(right, 0, 0x1122_3344_5566_7788n);
        left.post((batch) => {
          batch.compareSwap(1, right.mr.address, right.mr.rkey, 0x5566_7788, 0, 1, 1).sge(...left.at(0, 8));
          batch
            .compareSwap(2, right.mr.address, right.mr.rkey, 0x5566_7788, 0x1122_3344, 0xaabb_ccdd, 0x99)
            .sge(...left.at(8, 8));
        });
        const [first, second] = await left.sent(2);
        assert.deepEqual([first?.status, first?.opcode], ['SUCCESS', 'compareSwap']);
        assert.equal(second?.status, 'SUCCESS');
        assert.deepEqual([counter(left, 0), counter(left, 8)], [0x1122_3344_5566_7788n, 0x1122_3344_5566_7788n]);
        assert.equal(counter(right, 0), 0x99_aabb_ccddn);
      },
    );

    conforms(target, 'a list of ranges is gathered here and scattered there', {}, async ({ left, right }) => {
      left.put(0, 'abcdefghij');
      right.postReceives((batch) => {
        batch
          .receive(7)
          .sge(...right.at(1000, 1))
          .sge(...right.at(1100, 0))
          .sge(...right.at(1200, 4))
          .sge(...right.at(1300, 64));
      });
      left.post((batch) => {
        batch
          .send(1)
          .sge(...left.at(7, 3))
          .sge(...left.at(0, 2))
          .sge(...left.at(5, 0))
          .sge(...left.at(2, 5));
      });
      const [received] = await right.received();
      assert.equal(received?.byteLength, 10);
      assert.equal(right.text(1000, 1) + right.text(1200, 4) + right.text(1300, 5), 'hijabcdefg');
      left.post((batch) =>
        batch
          .write(2, right.mr.address, right.mr.rkey)
          .sge(...left.at(4, 2))
          .sge(...left.at(0, 2)),
      );
      left.post((batch) =>
        batch
          .read(3, right.mr.address, right.mr.rkey)
          .sge(...left.at(20, 3))
          .sge(...left.at(30, 1)),
      );
      assert.deepEqual(await left.sentStatuses(3), ['1:SUCCESS', '2:SUCCESS', '3:SUCCESS']);
      assert.deepEqual([right.text(0, 4), left.text(20, 3), left.text(30, 1)], ['efab', 'efa', 'b']);
    });

    conforms(target, 'messages of no bytes arrive all the same', {}, async ({ left, right }) => {
      right.receive(6, 0, 8);
      right.postReceives((batch) => batch.receive(7).receive(8));
      left.post((batch) => {
        batch.send(1);
        batch.send(2).sge(...left.at(0, 0));
        batch.writeWithImm(3, right.mr.address, right.mr.rkey, 9);
        batch.write(4, right.mr.address, right.mr.rkey);
        batch.read(5, right.mr.address, right.mr.rkey);
      });
      assert.deepEqual(
        (await right.received(3)).map(({ wrId, byteLength, imm }) => [wrId, byteLength, imm]),
        [
          [6, 0, undefined],
          [7, 0, undefined],
          [8, 0, 9],
        ],
      );
      assert.deepEqual(
        await left.sentStatuses(5),
        [1, 2, 3, 4, 5].map((wrId) => `${wrId}:SUCCESS`),
      );
      // No byte is touched, so no key is checked.
      left.post((batch) => batch.write(6, 0, 0).read(7, 0, 0));
      assert.deepEqual(await left.sentStatuses(2), ['6:SUCCESS', '7:SUCCESS']);
    });

    conforms(
      target,
      'reads beyond what may be under way wait for their turn',
      { left: { attributes: { maxRdAtomic: 1 } } },
      async ({ left, right }) => {
        pattern(right.bytes(0, 4096), 3);
        left.post((batch) => {
          for (let at = 0; at < 4096; at += 64) {
            batch.read(at, right.mr.address + at, right.mr.rkey, at === 4032 ? 1 : 0).sge(...left.at(at, 64));
          }
        });
        assert.deepEqual(await left.sentStatuses(), ['4032:SUCCESS']);
        assert.equal(Buffer.compare(left.bytes(0, 4096), right.bytes(0, 4096)), 0);
      },
    );

    conforms(
      target,
      'lengths around the MTU arrive whole',
      { left: { sizeBytes: 1 << 17 }, right: { sizeBytes: 1 << 17 } },
      async ({ left, right }) => {
        const mtu = left.device.port().activeMtu;
        for (const length of [1, 7, mtu - 1, mtu, mtu + 1, 2 * mtu, 5 * mtu + 3]) {
          pattern(left.bytes(0, length), length);
          right.bytes(0, 2 * length + 8).fill(0);
          left.bytes(65_536, length).fill(0);
          right.receive(1, 0, length);
          left.post((batch) => {
            batch.send(2).sge(...left.at(0, length));
            batch.write(3, right.mr.address + length + 3, right.mr.rkey).sge(...left.at(0, length));
            batch.read(4, right.mr.address + length + 3, right.mr.rkey).sge(...left.at(65_536, length));
          });
          assert.deepEqual(await left.sentStatuses(3), ['2:SUCCESS', '3:SUCCESS', '4:SUCCESS'], `${length} bytes`);
          assert.equal((await right.received())[0]?.byteLength, length);
          for (const copy of [right.bytes(0, length), right.bytes(length + 3, length), left.bytes(65_536, length)]) {
            assert.equal(Buffer.compare(left.bytes(0, length), copy), 0, `${length} bytes`);
          }
          assert.deepEqual([...right.bytes(length, 3)], [0, 0, 0]);
        }
      },
    );

    const size = 4 * 1024 * 1024 + 13;
    const big = { left: { sizeBytes: 2 * size }, right: { sizeBytes: 2 * size }, needs: 'bigMessages' } as const;
    conforms(target, 'messages of megabytes arrive whole', big, async ({ left, right }) => {
      pattern(left.bytes(0, size), 1);
      right.receive(1, 0, size);
      left.post((batch) => {
        batch.send(2).sge(...left.at(0, size));
        batch.write(3, right.mr.address + size, right.mr.rkey).sge(...left.at(0, size));
        batch.read(4, right.mr.address + size, right.mr.rkey).sge(...left.at(size, size));
      });
      assert.deepEqual(await left.sentStatuses(3), ['2:SUCCESS', '3:SUCCESS', '4:SUCCESS']);
      assert.equal((await right.received())[0]?.byteLength, size);
      for (const copy of [right.bytes(0, size), right.bytes(size, size), left.bytes(size, size)]) {
        assert.equal(Buffer.compare(left.bytes(0, size), copy), 0);
      }
    });

    conforms(target, 'a region of part of a memory is that part alone', {}, async ({ left, right }) => {
      const part = right.pd.register(right.mr.memory, {
        offset: 4096,
        sizeBytes: 64,
        access: access.localWrite | access.remoteWrite,
      });
      left.put(0, 'parts');
      left.post((batch) => batch.write(1, part.address + 59, part.rkey).sge(...left.at(0, 5)));
      assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
      assert.equal(right.text(4096 + 59, 5), 'parts');
      left.post((batch) => batch.write(2, part.address + 60, part.rkey).sge(...left.at(0, 5)));
      assert.deepEqual(await left.sentStatuses(), ['2:REM_ACCESS_ERR']);
    });
  });
}
