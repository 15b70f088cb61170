import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ageText, bytesText, countText, microsecondsText, percentText, rateText } from './figures.ts';

describe('figures', () => {
  test('have three digits at most and a unit', () => {
    const bytes = [0, 1, 999, 1000, 1536, 10_240, 1023 * 1024, 3.5e6, 5e9, 2 ** 60];
    assert.deepEqual(bytes.map(bytesText), [
      '0',
      '1 B',
      '999 B',
      '1.0 KiB',
      '1.5 KiB',
      '10 KiB',
      '1.0 MiB',
      '3.3 MiB',
      '4.7 GiB',
      '1024 PiB',
    ]);
    assert.deepEqual([0, 1536].map(rateText), ['0', '1.5 KiB/s']);
    assert.deepEqual([0, 950, 0.5, 1234, 99_999, 999_999].map(countText), ['0', '950', '0.5', '1.2k', '100k', '1.0M']);
  });

  test('tell shares and times as people do', () => {
    assert.deepEqual([0, 0.123, 1.5].map(percentText), ['0.0%', '12.3%', '150.0%']);
    assert.deepEqual([-1, 0, 45.4, 1200].map(microsecondsText), ['-', '0 us', '45 us', '1.2 ms']);
    const minuteMs = 60_000;
    assert.deepEqual([-5, 59_999, 12 * minuteMs, 184 * minuteMs, 53 * 60 * minuteMs].map(ageText), [
      '0s',
      '59s',
      '12m',
      '3h04m',
      '2d05h',
    ]);
  });
});
