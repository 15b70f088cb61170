// The rival of proxy.*: two haproxy in TCP mode, one on each host, with the same two hops as a
// carried connection.

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { MillraceError, UnsupportedError } from '../../src/errors.ts';
import { findProgram, type Host } from '../../src/lab/index.ts';
import type { ServerAddress } from './steer-peers.ts';
import { LineProgram } from './steer-program.ts';

interface HaproxyHop {
  readonly host: Host;
  readonly listen: ServerAddress;
  readonly next: ServerAddress;
}

const POLL_MS = 20;
const START_MS = 10_000;

/**
 * As a careful operator would configure it: no logs, one thread as daemons have one lane, enough
 * connections, long timeouts.
 */
export function haproxyConfig(listen: ServerAddress, next: ServerAddress): string {
  return `global
  nbthread 1
  maxconn 8000
  tune.bufsize 65536

defaults
  mode tcp
  maxconn 8000
  timeout connect 10s
  timeout client 1h
  timeout server 1h

listen hop
  bind ${listen.address}:${listen.port} backlog 4096
  server next ${next.address}:${next.port}
`;
}

export class HaproxyPair implements AsyncDisposable {
  readonly pids: readonly number[];
  readonly #undo: AsyncDisposableStack;

  /** Resolves when both listen. */
  static async start(hops: readonly HaproxyHop[], folder: string, signal: AbortSignal): Promise<HaproxyPair> {
    const haproxy = findProgram('haproxy', `${process.env.PATH ?? ''}:/usr/sbin`);
    if (haproxy === null) throw new UnsupportedError('start haproxy: install the Debian package haproxy');
    await using undo = new AsyncDisposableStack();
    const pids: number[] = [];
    for (const hop of hops) {
      const file = join(folder, `haproxy-${hop.host.name}.cfg`);
      await writeFile(file, haproxyConfig(hop.listen, hop.next));
      const program = undo.use(new LineProgram(hop.host, haproxy, ['-db', '-f', file]));
      await listening(hop, program, signal);
      pids.push(program.pid);
    }
    return new HaproxyPair(pids, undo.move());
  }

  private constructor(pids: readonly number[], undo: AsyncDisposableStack) {
    this.pids = pids;
    this.#undo = undo;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#undo.disposeAsync();
  }
}

/** haproxy prints nothing when it is ready, and the reason when it ends. */
async function listening({ host, listen }: HaproxyHop, program: LineProgram, signal: AbortSignal): Promise<void> {
  const ended = program.line(signal).then(
    () => null,
    (error: unknown) => error,
  );
  for (const endMs = performance.now() + START_MS; performance.now() < endMs; ) {
    const { stdout } = await host.run('ss', ['-ltnH', `sport = :${listen.port}`], { signal });
    if (stdout.trim() !== '') return;
    const error = await Promise.race([ended, sleep(POLL_MS, null, { signal })]);
    if (error !== null) throw error;
  }
  throw new MillraceError('MILLRACE_ERR_FAILED', `start haproxy in host ${host.name}: it does not listen`);
}
