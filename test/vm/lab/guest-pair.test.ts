// A test of two guests on one cable: RoCEv2 crosses it, and the capture shows it.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { GuestPair } from '../../../src/lab/vm/index.ts';

test('two guests talk RoCEv2 over their cable, and it is recorded', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-pair-'));
  try {
    await using pair = await GuestPair.boot({ mtu: 4300, memoryMb: 512, cpus: 1, failureDir: folder });
    const [first, second] = pair.guests;
    await Promise.all(pair.guests.map((guest) => guest.addRxe({ device: 'eth0' })));
    const words = ['stdbuf', '-oL', 'ibv_rc_pingpong', '-d', 'rxe0', '-g', '1', '-n', '10'];
    const { promise: isUp, resolve } = Promise.withResolvers<void>();
    const server = first.runOk(words, { timeoutMs: 60_000, onOutput: () => resolve() });
    await Promise.race([isUp, server]);
    const client = second.runOk([...words, '10.78.0.1'], { timeoutMs: 60_000 });
    for (const { stdout } of await Promise.all([server, client])) assert.match(stdout, /10 iters in/);
    const pcap = join(folder, 'cable.pcap');
    first.saveCapture(pcap);
    const { stdout } = spawnSync('tshark', ['-r', pcap, '-Y', 'infiniband'], { encoding: 'utf8' });
    assert.match(stdout, /10\.78\.0\.1 → 10\.78\.0\.2 .*RC Send/);
    assert.match(stdout, /10\.78\.0\.2 → 10\.78\.0\.1 .*RC Acknowledge/);
    // What is kept of a test that failed.
    assert.match(first.keepEvidence().join(), /vm-a-\d+\.console\.txt,.*\.pcap$/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
