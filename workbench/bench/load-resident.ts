// The memory of a daemon without peers that has come to rest.

import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Lab } from '../../src/lab/index.ts';
import { removeInstance } from '../../src/steering/index.ts';
import { DaemonProcess, daemonSettings } from '../worlds/index.ts';
import { type Contest, contestOf, longEnough, type Row } from './row.ts';

const bundler = join(import.meta.dirname, '../../tools/bundle.ts');
/** By then each thread has collected what its start has left. */
const REST_MS = 5000;
const KIB_PER_MIB = 1024;

/** Each round starts a daemon of its own. */
export async function prepareResident({ roundMs, signal }: Parameters<Row['prepare']>[0]): Promise<Contest> {
  await using undo = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), 'millrace-bench-'));
  undo.defer(() => rm(folder, { recursive: true, force: true }));
  const lab = undo.use(await Lab.create({ hosts: ['a', 'b'], signal }));
  const host = lab.host('a');
  // As JavaScript, as in the package: from sources each thread also has what strips types.
  const { stdout } = await promisify(execFile)(process.execPath, [bundler], { signal });
  const env = { ...process.env, MILLRACE_BUNDLE: stdout.trim() };
  const settings = daemonSettings({ host, peers: [], folder, devices: ['soft-shm', 'soft-tcp'] });
  return contestOf(undo, async () => {
    await using daemon = await DaemonProcess.start(host, folder, settings, env);
    try {
      await sleep(longEnough(roundMs, REST_MS), undefined, { signal });
      return await residentMiB(daemon.pid);
    } finally {
      await daemon.stop();
      removeInstance(daemon.instance);
    }
  });
}

async function residentMiB(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) / KIB_PER_MIB;
}
