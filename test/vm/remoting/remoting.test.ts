// Remoting into virtual machines that have no RDMA of their own: their programs drive a soft device
// of the host.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { runCaptured } from '../../../src/cli/fixtures/captured-world.ts';
import { reporterFile, tellGuestTests } from '../guest-tests.ts';
import { RemotingGuests } from './remoting-guests.ts';

const minuteMs = 60_000;
const exchange = 'test/vm/guest/remote-exchange.ts';
const victim = 'test/vm/guest/remote-victim.ts';
const conformanceFile = 'test/vm/guest/conformance-remote.ts';
const example = 'examples/transfer.ts';
const files = [exchange, victim, conformanceFile, example, reporterFile];
const root = join(import.meta.dirname, '../../..');
const rdmaModules = ['rdma_rxe', 'rdma_ucm', 'rdma_cm', 'iw_cm', 'ib_cm', 'ib_umad', 'ib_uverbs', 'ib_core'];
/** The router of a guest leads to this host by this address. */
const hostFromGuest = '10.0.2.2';

describe('guests of QEMU', { concurrency: false }, () => {
  let guests: RemotingGuests;
  before(
    async () => {
      guests = await RemotingGuests.boot(files);
    },
    { timeout: 2 * minuteMs },
  );
  after(() => guests?.[Symbol.asyncDispose]());

  test('have no RDMA support of their own', { timeout: 3 * minuteMs }, async () => {
    for (const name of ['a', 'b'] as const) {
      await guests.guest(name).runOk(['rmmod', ...rdmaModules]);
      const { stdout } = await guests.guest(name).run(['sh', '-c', 'ls /dev/infiniband /sys/class/infiniband; lsmod']);
      assert.doesNotMatch(stdout, /uverbs|rxe|ib_core/);
    }
  });

  test('exchange data with each other and with a process of the host, all at once', {
    timeout: 3 * minuteMs,
  }, async () => {
    const rounds = '8';
    const inGuest = (name: 'a' | 'b', ...peers: readonly string[]): Promise<{ readonly stdout: string }> =>
      guests.guest(name).runOk(guests.programs.words(exchange, name, hostFromGuest, guests.hubPort, rounds, ...peers), {
        env: guests.env,
        timeoutMs: 2 * minuteMs,
      });
    const onHost = promisify(execFile)(
      process.execPath,
      [exchange, 'host', '127.0.0.1', guests.hubPort, rounds, 'a', 'b'],
      {
        cwd: root,
        env: { ...process.env, MILLRACE_RUN_DIR: guests.backend.folder },
        timeout: 3 * minuteMs,
      },
    );
    const all = await Promise.all([inGuest('a', 'b', 'host'), inGuest('b', 'a', 'host'), onHost]);
    assert.deepEqual(
      all.map(({ stdout }) => JSON.parse(stdout)),
      [
        { name: 'a', provider: 'remote', peers: ['b', 'host'], rounds: [8, 8] },
        { name: 'b', provider: 'remote', peers: ['a', 'host'], rounds: [8, 8] },
        { name: 'host', provider: 'soft', peers: ['a', 'b'], rounds: [8, 8] },
      ],
    );
  });

  test('lose what a program had when it is killed', { timeout: 3 * minuteMs }, async (t) => {
    const guest = guests.guest('b');
    const killing = new AbortController();
    const ready = Promise.withResolvers<void>();
    const running = guest.run(guests.programs.words(victim), {
      env: guests.env,
      signal: killing.signal,
      onOutput: () => ready.resolve(),
    });
    running.catch(() => {});
    await ready.promise;
    const [program] = (await guests.backend.status()).guests;
    assert.match(program?.peer ?? '', /guest b$/);
    assert.ok((program?.used.memoryBytes ?? 0) >= 1 << 20);
    killing.abort(new Error('enough'));
    await assert.rejects(running);
    const startMs = performance.now();
    while ((await guests.backend.status()).guests.length > 0);
    // QEMU tells of it within a second.
    t.diagnostic(`freed after ${Math.round(performance.now() - startMs)} ms`);
  });

  test('are booted by a command, and run programs that know nothing of remoting', {
    timeout: 3 * minuteMs,
  }, async () => {
    const record = join(guests.backend.folder, 'recording');
    const { programs } = guests;
    const command = ['env', ...Object.entries(programs.env).map((pair) => pair.join('=')), ...programs.words(example)];
    const flags = ['--device', 'soft-shm', '--memory', '512', '--cpus', '1', '--record', record];
    const { code, stdout, stderr } = await runCaptured(['guest', 'run', ...flags, '--', ...command]);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /^transfer \d+ brought: "hello from another node"\n$/);
    assert.match(readFileSync(record, 'utf8'), /^\{"millrace":"recording"/);
  });

  test('pass the conformance suite, on the port of one that was killed', { timeout: 4 * minuteMs }, (t) =>
    tellGuestTests(t, guests.guest('b'), guests.programs, conformanceFile, {
      least: 150,
      timeoutMs: 2 * minuteMs,
      env: guests.env,
    }),
  );
});
