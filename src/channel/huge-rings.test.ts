import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { HugeRings } from './huge-rings.ts';
import type { Geometry } from './region-layout.ts';

const MIB = 1024 * 1024;

/** The ranges that were asked for. */
function asked(geometry: Geometry, consider: (rings: HugeRings) => void): [number, number][] {
  const ranges: [number, number][] = [];
  const memory = {
    useHugePages: (offset: number, sizeBytes: number): boolean => {
      ranges.push([offset, sizeBytes]);
      return false;
    },
  };
  consider(new HugeRings(memory, geometry));
  return ranges;
}

const geometry: Geometry = { slotBytes: 256, slots: (4 * MIB) / 256, maxRecordSlots: 1024 };

describe('huge pages of rings', () => {
  test('are for those that were filled many times', () => {
    const ranges = asked(geometry, (rings) => {
      rings.consider(0, 63 * MIB);
      rings.consider(1, 1 * MIB);
    });
    assert.deepEqual(ranges, []);
  });

  test('are asked for once, from where the first of them begins', () => {
    const ranges = asked(geometry, (rings) => {
      for (let time = 0; time < 3; time++) for (const ring of [0, 1] as const) rings.consider(ring, 64 * MIB);
    });
    assert.deepEqual(ranges, [
      [0, 4 * MIB + 128],
      [4 * MIB, 4 * MIB + 128],
    ]);
  });
});
