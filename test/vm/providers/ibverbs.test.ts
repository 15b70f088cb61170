// The ibverbs provider on the kernel's software RDMA device, in a guest: the conformance suite,
// what is beyond it, and ibv_rc_pingpong at the other side.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Guest } from '../../../src/lab/vm/index.ts';
import { GuestPrograms } from '../guest-programs.ts';
import { reporterFile, tellGuestTests } from '../guest-tests.ts';

const minuteMs = 60_000;
const suites = 'test/vm/guest/rxe-suites.ts';
const started = ['test/vm/guest/open-in-worker.ts', 'test/vm/guest/unprivileged-register.ts'];
const remoteSuite = 'test/vm/guest/conformance-remote-rxe.ts';
const remoteBackend = 'test/vm/guest/remote-backend.ts';
const bin = 'src/cli/bin.ts';
const files = [
  reporterFile,
  suites,
  ...started,
  remoteSuite,
  remoteBackend,
  'src/remoting/backend/threads/guest-worker.ts',
  bin,
];
const socketPath = '/tmp/backend.sock';

describe('ibverbs on rxe', () => {
  let programs: GuestPrograms;
  let guest: Guest;
  let listening: Promise<unknown>;
  const millrace = (...rest: readonly string[]): readonly string[] => programs.words(bin, ...rest);
  before(async () => {
    programs = await GuestPrograms.build(files);
    guest = await Guest.boot({ memoryMb: 1024, cpus: 1 });
    await guest.addRxe();
    // It starts while others do, and ends with the guest.
    listening = startBackend(guest, programs);
    listening.catch(() => {});
  });
  after(async () => {
    await guest?.close();
    programs?.[Symbol.dispose]();
  });

  test('the conformance suite, what is beyond it, and streams', { timeout: 4 * minuteMs }, (t) =>
    tellGuestTests(t, guest, programs, suites, { least: 145, timeoutMs: 3 * minuteMs }),
  );

  test('a backend in the guest serves another process there', { timeout: 3 * minuteMs }, async (t) => {
    await listening;
    const options = { least: 38, timeoutMs: 2 * minuteMs, arguments: [socketPath] };
    await tellGuestTests(t, guest, programs, remoteSuite, options);
  });

  describe('commands', () => {
    describe('pingpong', () => {
      const original = (): readonly string[] => ['ibv_rc_pingpong', '-d', 'rxe0', '-g', '1', '-c'];
      const ours = (): readonly string[] => millrace('perf', 'pingpong', '-d', 'rxe0', '-c');
      for (const [name, server, client] of [
        ['the original serves', original, ours],
        ['ours serves', ours, original],
      ] as const) {
        test(`${name}`, { timeout: 2 * minuteMs }, async () => {
          const { env } = programs;
          const serving = guest.runOk([...server(), '-n', '200'], { env, timeoutMs: minuteMs });
          // The port is in the kernel's table as soon as somebody listens: 18515 is 4853 in
          // hexadecimal.
          const isListening = 'until grep -q ":4853 .* 0A " /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done';
          await guest.runOk(['sh', '-c', isListening], { timeoutMs: minuteMs });
          const calling = guest.runOk([...client(), '-n', '200', '127.0.0.1'], { env, timeoutMs: minuteMs });
          for (const { stdout } of await Promise.all([serving, calling])) {
            assert.match(stdout, /1638400 bytes in [\d.]+ seconds = [\d.]+ Mbit\/sec\n200 iters in/);
            assert.doesNotMatch(stdout, /invalid data/);
          }
        });
      }
    });

    test('doctor finds the device and the library', { timeout: 2 * minuteMs }, async () => {
      const { stdout } = await guest.run(millrace('doctor', '--json'), { env: programs.env });
      const findings: { id: string; answer: string; detail: string }[] = JSON.parse(stdout).findings;
      for (const [id, detail] of [
        ['rdma-devices', /rxe0 port 1 ACTIVE/],
        ['libibverbs', /libibverbs\.so/],
        ['ibverbs', /rxe0/],
      ] as const) {
        const finding = findings.find((candidate) => candidate.id === id);
        assert.equal(finding?.answer, 'yes', id);
        assert.match(finding?.detail ?? '', detail);
      }
    });

    test('millrace dev shows it as ibv_devinfo does', { timeout: 2 * minuteMs }, async () => {
      const { stdout } = await guest.runOk(millrace('dev', 'show', 'rxe0', '--json'), { env: programs.env });
      const [device] = JSON.parse(stdout).devices;
      assert.equal(device.name, 'rxe0');
      const theirs = (await guest.runOk(['ibv_devinfo', '-d', 'rxe0', '-v'])).stdout;
      for (const [ours, pattern] of [
        [device.guid, /node_guid:\s+(\S+)/],
        [device.attributes.maxQps, /max_qp:\s+(\d+)/],
        [device.attributes.maxCqEntries, /max_cqe:\s+(\d+)/],
        [device.attributes.maxSrqRequests, /max_srq_wr:\s+(\d+)/],
        [device.ports[0].activeMtu, /active_mtu:\s+(\d+)/],
        [device.ports[0].gids[1], /GID\[\s*1\]:\s+([0-9a-f:.]+)/],
      ] as const) {
        assert.equal(String(ours), pattern.exec(theirs)?.[1], String(pattern));
      }
    });
  });
});

/** Resolves when it listens. */
function startBackend(guest: Guest, programs: GuestPrograms): Promise<unknown> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const words = programs.words(remoteBackend, socketPath, 'rxe0');
  const serving = guest.run(words, { env: programs.env, onOutput: () => resolve() });
  serving.catch(() => {});
  return Promise.race([promise, serving]);
}
