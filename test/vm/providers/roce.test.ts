// Our RoCEv2 and the kernel's, in one guest: rxe at one end of a veth pair, the soft device at the
// other, in a network namespace of its own because rxe has the port in the first one.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { Guest } from '../../../src/lab/vm/index.ts';
import { GuestPrograms } from '../guest-programs.ts';
import { reporterFile, tellGuestTests } from '../guest-tests.ts';

const suite = 'test/vm/guest/conformance-roce.ts';
const bin = 'src/cli/bin.ts';
const minuteMs = 60_000;
const prefix = ['ip', 'netns', 'exec', 'soft'];

const cabling = `
  set -e
  ip netns add soft
  ip link add v0 type veth peer name v1 netns soft
  ip link set v0 mtu 4300 up
  ip addr add 10.77.0.1/24 dev v0
  ip addr add fd77::1/64 dev v0 nodad
  ip -n soft link set lo up
  ip -n soft link set v1 mtu 4300 up
  # Cut packets up before they are on the cable, where a recording shows each.
  ip -n soft link set v1 gso_max_segs 1
  ip -n soft addr add 10.77.0.2/24 dev v1
  ip -n soft addr add fd77::2/64 dev v1 nodad
  rdma link add rxe0 type rxe netdev v0
`;

/**
 * Runs `talk` while everything on the cable is recorded; returns what tshark makes of it, by field.
 */
async function recorded(guest: Guest, folder: string, talk: () => Promise<unknown>): Promise<string[][]> {
  const stop = new AbortController();
  const file = '/tmp/talk.pcap';
  // Discard's port is for the end: what was sent before it is in the file when it is.
  const words = ['dumpcap', '-q', '-P', '-B', '16', '-i', 'v0', '-w', file, '-f', 'udp port 4791 or udp port 9'];
  const watching = guest.run(words, { signal: stop.signal, timeoutMs: 3 * minuteMs });
  watching.catch(() => {});
  const isWatching = `until [ -s ${file} ]; do sleep 0.1; done`;
  await Promise.race([guest.runOk(['sh', '-c', isWatching], { timeoutMs: minuteMs }), watching]);
  await talk();
  const end = `until grep -q "end of talk" ${file}; do printf "end of talk" > /dev/udp/10.77.0.1/9; sleep 0.1; done`;
  await guest.runOk([...prefix, 'bash', '-c', end], { timeoutMs: minuteMs });
  stop.abort();
  await watching.catch(() => undefined);
  await guest.runOk(['cp', file, folder]);
  const fields = ['infiniband.bth.opcode', 'infiniband.bth.psn', '_ws.malformed', '_ws.expert.message'];
  const shown = fields.flatMap((field) => ['-e', field]);
  const tshark = ['-r', join(folder, 'talk.pcap'), '-Y', 'udp.port == 4791', '-T', 'fields', ...shown];
  // Here rather than there: it takes long to start.
  const { stdout } = await promisify(execFile)('tshark', tshark, { maxBuffer: 64 << 20 });
  return stdout
    .trim()
    .split('\n')
    .map((line) => line.split('\t'));
}

describe('RoCEv2 with the kernel', () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-roce-'));
  let programs: GuestPrograms;
  let guest: Guest;
  before(async () => {
    programs = await GuestPrograms.build([suite, reporterFile, bin]);
    guest = await Guest.boot({ memoryMb: 1024, cpus: 1, share: folder });
    await guest.runOk(['bash', '-c', cabling]);
  });
  after(async () => {
    await guest?.close();
    programs?.[Symbol.dispose]();
    rmSync(folder, { recursive: true });
  });

  test(
    'the conformance suite with rxe first, by IPv4, and with the soft device first, by IPv6',
    {
      timeout: 4 * minuteMs,
    },
    (t) =>
      tellGuestTests(t, guest, programs, suite, {
        least: 180,
        timeoutMs: 3 * minuteMs,
        prefix,
        arguments: ['10.77.0.2', 'fd77::2'],
      }),
  );

  const original = ['ibv_rc_pingpong', '-d', 'rxe0', '-g', '1', '-m', '1024', '-c', '-n', '200'];
  test('ibv_rc_pingpong and our device call each other, and tshark finds nothing wrong with the packets', {
    timeout: 3 * minuteMs,
  }, async () => {
    const { env } = programs;
    const options = ['-d', 'soft-roce', '-m', '1024', '-c', '-n', '200'];
    const ours = [...prefix, ...programs.words(bin, 'perf', 'pingpong', ...options)];
    const packets = await recorded(guest, folder, async () => {
      await pingPong(guest, env, ours, prefix, original, '10.77.0.2');
      await pingPong(guest, env, original, [], ours, '10.77.0.1');
    });
    // Twice 200 messages of four packets each way, and their acknowledgements.
    const opcodes = Map.groupBy(packets, ([opcode]) => Number(opcode));
    for (const [opcode, least] of [
      [0, 800],
      [1, 1600],
      [2, 800],
      [17, 200],
    ] as const) {
      const count = opcodes.get(opcode)?.length ?? 0;
      assert.ok(count >= least, `${count} packets with opcode ${opcode}, expected ${least}`);
    }
    const wrong = packets.filter(([, , malformed, expert]) => `${malformed ?? ''}${expert ?? ''}` !== '');
    assert.deepEqual(wrong.slice(0, 3), []);
  });
});

/** Both must say that all messages went there and back, and that what came was right. */
async function pingPong(
  guest: Guest,
  env: Readonly<Record<string, string>>,
  server: readonly string[],
  netns: readonly string[],
  client: readonly string[],
  host: string,
): Promise<void> {
  const options = { env: { ...env, MILLRACE_SOFT_ADDRESS: '10.77.0.2' }, timeoutMs: 2 * minuteMs };
  const serving = guest.runOk(server, options);
  // The port is in the kernel's table as soon as somebody listens: 18515 is 4853 in hexadecimal.
  const isListening = 'until grep -q ":4853 .* 0A " /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done';
  await guest.runOk([...netns, 'sh', '-c', isListening], { timeoutMs: minuteMs });
  const calling = guest.runOk([...client, host], options);
  for (const { stdout } of await Promise.all([serving, calling])) {
    assert.match(stdout, /1638400 bytes in [\d.]+ seconds = [\d.]+ Mbit\/sec\n200 iters in/);
    assert.doesNotMatch(stdout, /invalid data/);
  }
}
