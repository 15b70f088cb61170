// Tests of what is told when a rule needs a method that the kernel cannot run.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkMethods, type Method } from './methods.ts';
import { parseRules } from './rules.ts';

const connect: Method = {
  name: 'connect',
  hooks: [],
  daemonHooks: [],
  verdicts: [],
  runnable: [],
  maps: [],
  pins: [],
};
const missing = new Map([['shortcut', 'this kernel charges 0 of 1000 redirected bytes']]);

function check(rules: string): void {
  checkMethods(parseRules(rules), { methods: [connect], missing });
}

test('a rule that needs a missing method is refused with the reason, and no other rule is', () => {
  assert.throws(() => check('connect\nshortcut'), { name: 'UnsupportedError', message: /charges 0 of 1000/ });
  assert.throws(() => check('connect redirect'), { message: /redirect: this kernel cannot: .*charges 0 of 1000/ });
  check('pass to 10.0.0.0/8\nconnect');
});
