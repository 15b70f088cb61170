import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { isExpected } from './daemon-log.ts';

describe('the log of a daemon in a soak', () => {
  test('a stack, a protocol error of a peer and an error of a lane are not expected', () => {
    for (const line of [
      'TypeError: x is not a function',
      JSON.stringify({ level: 'error', where: 'channel', msg: 'peer b broke the rules' }),
      JSON.stringify({ level: 'error', where: 'lane', msg: 'accept connections: EMFILE' }),
      JSON.stringify({ level: 'error', msg: 'something else' }),
    ]) {
      assert.equal(isExpected(line), false, line);
    }
  });

  test('what a cut wire and a dead etcd lead to is expected', () => {
    for (const line of [
      JSON.stringify({ level: 'error', where: 'control', msg: 'peer b: ECONNRESET' }),
      JSON.stringify({ level: 'error', where: 'etcd', msg: 'http://10.77.0.3:2379: ECONNREFUSED' }),
      JSON.stringify({ level: 'warn', event: 'link', msg: 'link 0 to b is recovering' }),
    ]) {
      assert.equal(isExpected(line), true, line);
    }
  });
});
