// Requests that the local device must refuse, before the peer has seen anything of them.

import assert from 'node:assert/strict';
import { describe } from 'node:test';
import type { SendBatch } from '../../src/verbs/index.ts';
import { failsAndFlushes } from './failing.ts';
import type { End } from './rig.ts';
import { type ConformanceTarget, conforms } from './target.ts';

/** A request of the left end that the local device must refuse. */
interface LocalCase {
  readonly name: string;
  readonly expected: readonly string[];
  readonly fill: (batch: SendBatch, left: End, right: End) => unknown;
}

const localCases: readonly LocalCase[] = [
  {
    name: 'an lkey that does not exist',
    expected: ['LOC_PROT_ERR'],
    fill: (batch, left) => batch.send(1).sge((left.mr.lkey ^ 0x5a5a_5a5a) >>> 0, left.mr.address, 8),
  },
  {
    name: 'an lkey of another protection domain',
    expected: ['LOC_PROT_ERR'],
    fill: (batch, left) => {
      const foreign = left.device.createPd().allocate({ sizeBytes: 4096 });
      return batch.send(1).sge(foreign.lkey, foreign.address, 8);
    },
  },
  {
    name: 'a range that ends outside the region',
    expected: ['LOC_PROT_ERR'],
    fill: (batch, left) => batch.send(1).sge(left.mr.lkey, left.mr.address + left.mr.sizeBytes - 4, 8),
  },
  {
    name: 'a range that begins before the region',
    expected: ['LOC_PROT_ERR'],
    fill: (batch, left) => batch.send(1).sge(left.mr.lkey, left.mr.address - 4, 8),
  },
  {
    name: 'the second range of a list being wrong',
    expected: ['LOC_PROT_ERR'],
    fill: (batch, left, right) =>
      batch
        .write(1, right.mr.address, right.mr.rkey)
        .sge(...left.at(0, 8))
        .sge(left.mr.lkey, left.mr.address + left.mr.sizeBytes, 1),
  },
  {
    name: 'the region of a request being closed before it is posted',
    expected: ['LOC_PROT_ERR'],
    fill: (batch, left) => {
      const closed = left.pd.allocate({ sizeBytes: 4096 });
      const { lkey, address } = closed;
      closed.close();
      return batch.send(1).sge(lkey, address, 8);
    },
  },
  {
    name: 'a READ into a region that is not for writing',
    expected: ['LOC_PROT_ERR', 'LOC_ACCESS_ERR'],
    fill: (batch, left, right) => {
      const readOnly = left.pd.allocate({ sizeBytes: 4096, access: 0 });
      return batch.read(1, right.mr.address, right.mr.rkey).sge(readOnly.lkey, readOnly.address, 8);
    },
  },
];

export function localErrors(target: ConformanceTarget): void {
  describe(`${target.name}: requests that fail here`, () => {
    for (const { name, expected, fill } of localCases) {
      const needs = { needs: 'localStatus' } as const;
      conforms(target, `${name} is ${expected.join(' or ')}, and the peer gets nothing`, needs, async (rig) => {
        const { left, right } = rig;
        right.receive(9, 0, 64);
        left.bytes(0, 64).fill(7);
        await failsAndFlushes(rig, (batch) => fill(batch, left, right), expected);
        assert.ok(right.bytes(0, 64).every((byte) => byte === 0));
      });
    }

    conforms(
      target,
      'requests before the one that fails complete first',
      { needs: 'localStatus' },
      async ({ left, right }) => {
        left.post((batch) => {
          for (let wrId = 1; wrId <= 5; wrId++)
            batch.write(wrId, right.mr.address + wrId, right.mr.rkey).sge(...left.at(0, 1));
          batch.read(6, right.mr.address, right.mr.rkey).sge(...left.at(100, 4096));
          batch.send(7).sge(0, left.mr.address, 8);
        });
        const expected = [1, 2, 3, 4, 5, 6].map((wrId) => `${wrId}:SUCCESS`);
        assert.deepEqual(await left.sentStatuses(7), [...expected, '7:LOC_PROT_ERR']);
      },
    );

    conforms(
      target,
      'a receive with a wrong lkey is LOC_PROT_ERR there and REM_OP_ERR here',
      { needs: 'receiveStatus' },
      async ({ left, right }) => {
        right.postReceives((batch) => batch.receive(9).sge((right.mr.lkey ^ 0x5a5a_5a5a) >>> 0, right.mr.address, 64));
        right.receive(10, 0, 64);
        left.post((batch) => batch.send(1).sge(...left.at(0, 8)));
        assert.deepEqual(await left.sentStatuses(), ['1:REM_OP_ERR']);
        assert.deepEqual(await right.receivedStatuses(2), ['9:LOC_PROT_ERR', '10:WR_FLUSH_ERR']);
        assert.deepEqual([left.qp.state, right.qp.state], ['ERR', 'ERR']);
      },
    );
  });
}
