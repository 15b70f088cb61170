// The conformance suite through remoting from a container: another user, network, process and mount
// namespaces, and the backend's socket.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { BackendProcess } from '../../../src/remoting/backend/fixtures/backend-process.ts';
import type { GuestTest } from '../../vm/guest/reporter.ts';
import { CONTAINER_UID, inside, runInContainer } from './container.ts';

const reporter = inside(join(import.meta.dirname, '../../vm/guest/reporter.ts'));
const TIMEOUT_MS = 120_000;
/** On each wire; more by now. */
const LEAST_TESTS = 150;

test('a program in a container passes the conformance suite on both wires', { timeout: TIMEOUT_MS }, async (t) => {
  await using backend = await BackendProcess.start({ uids: [CONTAINER_UID] });
  const { status, stdout, stderr } = await runInContainer(
    backend.socketPath,
    [`--test-reporter=${reporter}`],
    'test/kernel/remoting/container-conformance.ts',
    t.signal,
  );
  const tests = stdout
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line): GuestTest => JSON.parse(line));
  for (const { name, isPassed, error } of tests) {
    await t.test(name, () => assert.ok(isPassed, `in the container: ${error}`));
  }
  const passed = tests.filter(({ isPassed, skip }) => isPassed && skip === undefined).length;
  assert.ok(passed >= 2 * LEAST_TESTS, `${passed} tests passed; it ended with ${status}: ${stderr.slice(-2000)}`);
  assert.equal(status, 0, stderr.slice(-2000));
});

test('a program in a container whose user is not allowed is refused', { timeout: TIMEOUT_MS }, async (t) => {
  await using backend = await BackendProcess.start({ uids: [CONTAINER_UID - 1] });
  const { status, stdout, stderr } = await runInContainer(
    backend.socketPath,
    [],
    'test/kernel/remoting/container-conformance.ts',
    t.signal,
  );
  assert.notEqual(status, 0);
  assert.match(stdout + stderr, /uid 65534, gid 65534 are not allowed to use this backend/);
});
