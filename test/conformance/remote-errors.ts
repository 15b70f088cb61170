// Requests that the peer must refuse: with which status, and that no byte is changed.

import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { access, CompletionError, type SendBatch } from '../../src/verbs/index.ts';
import { failsAndFlushes } from './failing.ts';
import type { End } from './rig.ts';
import { type ConformanceTarget, conforms } from './target.ts';
import { reap, until } from './wait.ts';

const { localWrite, remoteAtomic, remoteRead, remoteWrite } = access;

/** A request of the left end that the peer must refuse. */
interface RemoteCase {
  readonly name: string;
  readonly expected: readonly string[];
  readonly isAtomic?: boolean;
  readonly isUnaligned?: boolean;
  /** Of the right end's region and QP. */
  readonly access?: number;
  readonly qpAccess?: number;
  readonly fill: (batch: SendBatch, left: End, right: End) => unknown;
}

const remoteAccess = ['REM_ACCESS_ERR'];
const everything = localWrite | remoteWrite | remoteRead | remoteAtomic;

function write(batch: SendBatch, left: End, address: number, rkey: number, length = 8): SendBatch {
  return batch.write(1, address, rkey).sge(...left.at(0, length));
}

const remoteCases: readonly RemoteCase[] = [
  {
    name: 'an rkey that does not exist',
    expected: remoteAccess,
    fill: (batch, left, { mr }) => write(batch, left, mr.address, (mr.rkey ^ 0x5a5a_5a5a) >>> 0),
  },
  {
    name: 'an rkey of another protection domain than the QP',
    expected: remoteAccess,
    fill: (batch, left, right) => {
      const foreign = right.device.createPd().allocate({ sizeBytes: 4096, access: everything });
      return write(batch, left, foreign.address, foreign.rkey);
    },
  },
  {
    name: 'a WRITE that ends outside the region',
    expected: remoteAccess,
    fill: (batch, left, { mr }) => write(batch, left, mr.address + mr.sizeBytes - 7, mr.rkey),
  },
  {
    name: 'a WRITE that begins before the region',
    expected: remoteAccess,
    fill: (batch, left, { mr }) => write(batch, left, mr.address - 1, mr.rkey),
  },
  {
    name: 'a long WRITE whose last bytes are outside',
    expected: remoteAccess,
    fill: (batch, left, { mr }) => write(batch, left, mr.address + 1, mr.rkey, mr.sizeBytes),
  },
  {
    name: 'a READ outside the region',
    expected: remoteAccess,
    fill: (batch, left, { mr }) => batch.read(1, mr.address + mr.sizeBytes, mr.rkey).sge(...left.at(0, 1)),
  },
  {
    name: 'an atomic outside the region',
    expected: remoteAccess,
    isAtomic: true,
    fill: (batch, left, { mr }) => batch.fetchAdd(1, mr.address + mr.sizeBytes, mr.rkey, 1).sge(...left.at(0, 8)),
  },
  {
    name: 'an atomic on an address that is not a multiple of eight',
    expected: ['REM_INV_REQ_ERR', 'REM_ACCESS_ERR'],
    isAtomic: true,
    isUnaligned: true,
    fill: (batch, left, { mr }) => batch.fetchAdd(1, mr.address + 4, mr.rkey, 1).sge(...left.at(0, 8)),
  },
  ...[
    { holder: 'region', access: localWrite | remoteRead | remoteAtomic },
    { holder: 'QP', qpAccess: localWrite | remoteRead | remoteAtomic },
  ].flatMap(({ holder, ...options }): RemoteCase[] => [
    {
      ...options,
      name: `a WRITE to a ${holder} without remote write access`,
      expected: holder === 'QP' ? ['REM_ACCESS_ERR', 'REM_INV_REQ_ERR'] : remoteAccess,
      fill: (batch, left, { mr }) => write(batch, left, mr.address, mr.rkey),
    },
  ]),
  ...[
    { holder: 'region', access: localWrite | remoteWrite },
    { holder: 'QP', qpAccess: localWrite | remoteWrite },
  ].flatMap(({ holder, ...options }): RemoteCase[] => {
    const expected = holder === 'QP' ? ['REM_ACCESS_ERR', 'REM_INV_REQ_ERR'] : remoteAccess;
    return [
      {
        ...options,
        name: `a READ from a ${holder} without remote read access`,
        expected,
        fill: (batch, left, { mr }) => batch.read(1, mr.address, mr.rkey).sge(...left.at(0, 8)),
      },
      {
        ...options,
        name: `an atomic on a ${holder} without remote atomic access`,
        expected,
        isAtomic: true,
        fill: (batch, left, { mr }) => batch.compareSwap(1, mr.address, mr.rkey, 0, 0, 1, 1).sge(...left.at(0, 8)),
      },
    ];
  }),
];

export function remoteErrors(target: ConformanceTarget): void {
  describe(`${target.name}: requests that the peer refuses`, () => {
    for (const {
      name,
      expected,
      fill,
      isAtomic = false,
      isUnaligned = false,
      access: flags = everything,
      qpAccess = everything,
    } of remoteCases) {
      const right = { access: flags, qpAccess };
      const needs = isAtomic ? ({ needs: isUnaligned ? 'unalignedAtomics' : 'atomics' } as const) : {};
      const left = { sizeBytes: 1 << 17 };
      conforms(
        target,
        `${name} is ${expected.join(' or ')}, and changes nothing`,
        { right, left, ...needs },
        async (rig) => {
          rig.left.mr.bytes.fill(7);
          await failsAndFlushes(rig, (batch) => fill(batch, rig.left, rig.right), expected);
          assert.ok(rig.right.mr.bytes.every((byte) => byte === 0));
          assert.ok(rig.left.mr.bytes.every((byte) => byte === 7));
        },
      );
    }

    conforms(
      target,
      'a message too long for its receive is LOC_LEN_ERR there and REM_INV_REQ_ERR here',
      { needs: 'receiveStatus' },
      async (rig) => {
        const { left, right } = rig;
        right.receive(9, 0, 15);
        right.receive(10, 1024, 64);
        left.bytes(0, 64).fill(7);
        await failsAndFlushes(rig, (batch) => batch.send(1).sge(...left.at(0, 16)), ['REM_INV_REQ_ERR']);
        assert.deepEqual(await right.receivedStatuses(2), ['9:LOC_LEN_ERR', '10:WR_FLUSH_ERR']);
        assert.equal(right.qp.state, 'ERR');
        assert.ok(right.bytes(15, 2048).every((byte) => byte === 0));
      },
    );

    conforms(target, 'a receive without memory takes no bytes', { needs: 'receiveStatus' }, async ({ left, right }) => {
      right.postReceives((batch) => batch.receive(9));
      left.post((batch) => batch.send(1).sge(...left.at(0, 1)));
      assert.deepEqual(await left.sentStatuses(), ['1:REM_INV_REQ_ERR']);
      assert.deepEqual(await right.receivedStatuses(), ['9:LOC_LEN_ERR']);
    });

    conforms(
      target,
      'what was asked for before the request that is refused is answered first',
      {},
      async ({ left, right }) => {
        right.put(0, 'answer');
        left.post((batch) => {
          batch.read(1, right.mr.address, right.mr.rkey).sge(...left.at(0, 6));
          batch.read(2, right.mr.address, 0).sge(...left.at(8, 6));
          batch.read(3, right.mr.address, right.mr.rkey).sge(...left.at(16, 6));
        });
        assert.deepEqual(await left.sentStatuses(3), ['1:SUCCESS', '2:REM_ACCESS_ERR', '3:WR_FLUSH_ERR']);
        assert.deepEqual([left.text(0, 6), left.bytes(16, 1)[0]], ['answer', 0]);
      },
    );

    conforms(
      target,
      'the QP of the peer that refused is in ERR, too, and its receives are flushed',
      { needs: 'responderDies' },
      async ({ left, right }) => {
        right.receive(9, 0, 64);
        right.receive(10, 0, 64);
        left.post((batch) => batch.write(1, right.mr.address, 0).sge(...left.at(0, 8)));
        assert.deepEqual(await left.sentStatuses(), ['1:REM_ACCESS_ERR']);
        assert.deepEqual(await right.receivedStatuses(2), ['9:WR_FLUSH_ERR', '10:WR_FLUSH_ERR']);
        assert.equal(right.qp.state, 'ERR');
      },
    );

    conforms(target, 'a QP that dies is announced at both ends', { needs: 'qpFatal' }, async ({ left, right }) => {
      const dead: number[] = [];
      for (const end of [left, right]) end.device.events.on('qpFatal', ({ qpNumber }) => dead.push(qpNumber));
      left.post((batch) => batch.write(1, right.mr.address, 0).sge(...left.at(0, 8)));
      await until('both events', () => dead.length === 2);
      assert.deepEqual(new Set(dead), new Set([left.qp.number, right.qp.number]));
    });

    for (const what of ['QP', 'device'] as const) {
      const name = `the ${what} may be closed in the very event that announces a QP's death`;
      conforms(target, name, { needs: 'qpFatal' }, async (rig) => {
        const { left, right } = rig;
        const [otherLeft, otherRight] = [left.createQp(), right.createQp()];
        rig.connect(otherLeft, otherRight);
        for (const { device, qp } of [left, right]) {
          device.events.on('qpFatal', ({ qpNumber }) => {
            if (qpNumber === qp.number) (what === 'QP' ? qp : device).close();
          });
        }
        right.receive(9, 0, 64);
        left.post((batch) =>
          batch
            .write(1, right.mr.address, 0)
            .sge(...left.at(0, 8))
            .send(2),
        );
        await until('both to be closed', () => left.qp.isClosed && right.qp.isClosed);
        if (what === 'device') return;
        // The refusal may not have got out before the end.
        const [first] = await left.sent();
        assert.ok(first?.status === 'REM_ACCESS_ERR' || first?.status === 'RETRY_EXC_ERR', first?.status);
        reap(left.sendCq);
        left.post((batch) => batch.write(3, right.mr.address, right.mr.rkey).sge(...left.at(0, 8)), otherLeft);
        assert.deepEqual(await left.sentStatuses(), ['3:SUCCESS']);
      });
    }

    conforms(target, 'other QPs of the same devices go on', {}, async (rig) => {
      const { left, right } = rig;
      const [otherLeft, otherRight] = [left.createQp(), right.createQp()];
      rig.connect(otherLeft, otherRight);
      left.post((batch) => batch.write(1, right.mr.address, 0).sge(...left.at(0, 8)));
      assert.deepEqual(await left.sentStatuses(), ['1:REM_ACCESS_ERR']);
      left.post((batch) => batch.write(2, right.mr.address, right.mr.rkey).sge(...left.at(0, 8)), otherLeft);
      assert.deepEqual(await left.sentStatuses(), ['2:SUCCESS']);
    });

    conforms(
      target,
      'the text of an error names the request, the QP and the likely cause',
      {},
      async ({ left, right }) => {
        left.post((batch) => batch.write(1, right.mr.address, 0).sge(...left.at(0, 8)));
        const [completion] = await left.sent();
        assert.ok(completion);
        const error = new CompletionError(completion, left.qp);
        assert.equal(error.code, 'REM_ACCESS_ERR');
        assert.match(
          error.message,
          new RegExp(`^request 1 on QP ${left.qp.number} to .+: REM_ACCESS_ERR \\(the rkey was wrong`),
        );
      },
    );
  });
}
