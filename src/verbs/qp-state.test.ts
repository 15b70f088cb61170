import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { checkStep, type QpAttributes, type QpState, qpStates } from './qp-state.ts';

const toRtr: QpAttributes = {
  path: { gid: '::1' },
  pathMtu: 1024,
  destQpNumber: 1,
  rqPsn: 0,
  maxDestRdAtomic: 1,
  minRnrTimer: 0,
};
const toRts: QpAttributes = { sqPsn: 0, timeout: 14, retryCount: 7, rnrRetry: 7, maxRdAtomic: 1 };

/** Every step of an RC QP, with the attributes that it needs. All others are illegal. */
const steps: Readonly<Record<string, QpAttributes>> = {
  'RESET INIT': { portNumber: 1, access: 0 },
  'INIT INIT': {},
  'INIT RTR': toRtr,
  'RTR RTS': toRts,
  'RTS RTS': {},
  'RTS SQD': {},
  'SQD SQD': {},
  'SQD RTS': {},
  ...Object.fromEntries(qpStates.map((from) => [`${from} RESET`, {}])),
  ...Object.fromEntries(qpStates.filter((from) => from !== 'RESET').map((from) => [`${from} ERR`, {}])),
};

describe('the QP state machine', () => {
  test('every other step is refused, with the names of both states', () => {
    let illegal = 0;
    for (const from of qpStates) {
      for (const to of qpStates) {
        if (`${from} ${to}` in steps) continue;
        illegal++;
        assert.throws(() => checkStep('RC', from, to, {}), {
          code: 'MILLRACE_ERR_USAGE',
          message: `QP from ${from} to ${to}: there is no such step (RC)`,
        });
      }
    }
    assert.equal(illegal, qpStates.length ** 2 - Object.keys(steps).length);
  });

  test('a step without one of its attributes is refused, with its name', () => {
    for (const [step, attributes] of Object.entries(steps)) {
      const [from, to] = step.split(' ') as [QpState, QpState];
      checkStep('RC', from, to, attributes);
      for (const name of Object.keys(attributes)) {
        assert.throws(() => checkStep('RC', from, to, { ...attributes, [name]: undefined }), {
          message: `QP from ${from} to ${to}: ${name} must be given`,
        });
      }
    }
  });

  test('an attribute of another step, and one that is out of range, is refused', () => {
    assert.throws(
      () => checkStep('RC', 'RESET', 'INIT', { portNumber: 1, access: 0, sqPsn: 1 }),
      /sqPsn cannot be given/,
    );
    const wrong: QpAttributes[] = [
      { rqPsn: 0x100_0000 },
      { destQpNumber: -1 },
      { minRnrTimer: 32 },
      { rqPsn: Number.NaN },
    ];
    for (const change of wrong) {
      assert.throws(() => checkStep('RC', 'INIT', 'RTR', { ...toRtr, ...change }), /expected 0 to/);
    }
    assert.throws(() => checkStep('RC', 'INIT', 'RTR', { ...toRtr, pathMtu: 1500 as 1024 }), /pathMtu is 1500/);
    assert.throws(() => checkStep('RC', 'RTR', 'RTS', { ...toRts, retryCount: 8 }), /retryCount is 8/);
    assert.throws(() => checkStep('RC', 'RESET', 'INIT', { portNumber: 1, access: 64 }), /access flags/);
  });

  test('a datagram QP is modified to RTS without a peer', () => {
    checkStep('UD', 'RESET', 'INIT', { portNumber: 1, qkey: 5 });
    checkStep('UD', 'INIT', 'RTR', {});
    checkStep('UD', 'RTR', 'RTS', { sqPsn: 0 });
    assert.throws(() => checkStep('UD', 'INIT', 'RTR', toRtr), /cannot be given here/);
  });
});
