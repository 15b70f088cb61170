import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { checkParameters, decodeParameters, defaultIterations, defaultSize, perfTests } from './parameters.ts';

const good = {
  test: 'write-bw',
  transport: 'shm',
  sizeBytes: 64,
  iterations: 10,
  durationS: 0,
  queuePairs: 1,
  txDepth: 128,
} as const;

describe('the parameters of a perf run', () => {
  test('invalid parameters are refused, and named as on the command line', () => {
    const wrong: [object, RegExp][] = [
      [{ sizeBytes: 0 }, /-s is 0; expected 1 to 268435456/],
      [{ sizeBytes: 2 ** 30 }, /-s is 1073741824/],
      [{ iterations: 0.5 }, /-n is 0.5/],
      [{ durationS: -1 }, /-D is -1/],
      [{ queuePairs: 65 }, /-q is 65/],
      [{ txDepth: 0 }, /-t is 0/],
      [{ test: 'atomic-lat' }, /an atomic has 8 bytes/],
      [{ test: 'send-lat', queuePairs: 2 }, /latency is measured on one queue pair/],
    ];
    for (const [change, message] of wrong) {
      assert.throws(() => checkParameters({ ...good, ...change }), { code: 'MILLRACE_ERR_USAGE', message });
      const own = { test: 'test' in change ? (change.test as 'send-lat') : good.test, transport: 'shm' } as const;
      assert.throws(() => decodeParameters({ v: 1, ...good, ...change }, own), {
        code: 'MILLRACE_ERR_FAILED',
        message,
      });
    }
  });

  test('a client that runs another test, or on another wire, is told so', () => {
    assert.throws(
      () => decodeParameters({ v: 1, ...good, test: 'read-bw' }, good),
      /the client runs read-bw; start both/,
    );
    assert.throws(() => decodeParameters({ v: 1, ...good, test: '\n' }, good), /the client runs something else/);
    assert.throws(() => decodeParameters({ v: 1, ...good, transport: 'tcp' }, good), /choose the same with -d/);
    assert.throws(() => decodeParameters({ ...good }, good), /another version/);
  });

  test('whatever a client sends is understood or refused', () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        assert.throws(() => decodeParameters(JSON.parse(text), good), { code: 'MILLRACE_ERR_FAILED' });
      }),
    );
    assert.deepEqual(decodeParameters({ v: 1, ...good, extra: 1 }, good), good);
  });

  test('every test has defaults that make sense', () => {
    for (const name of perfTests) {
      checkParameters({ ...good, test: name, sizeBytes: defaultSize(name), iterations: defaultIterations(name) });
    }
  });
});
