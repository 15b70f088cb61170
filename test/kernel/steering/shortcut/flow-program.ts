// The C program that makes two sockets talk (*.c beside this): compiled, and runs of it in a host.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { globSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Host } from '../../../../src/lab/index.ts';

const flags = ['-std=gnu17', '-D_GNU_SOURCE', '-O2', '-Wall', '-Wextra', '-Werror', '-pthread'];
const LIMIT_MS = 100_000;

export class FlowProgram implements Disposable {
  readonly file: string;
  /**
   * FLOW_CLIENT_PORT and FLOW_SERVER_PORT choose the ports, FLOW_FIRST_SEQ the client's first
   * sequence number, FLOW_RECEIVE_BUFFER the buffer of one that stands still.
   */
  env: Readonly<Record<string, string>> = {};
  readonly #folder = mkdtempSync(join(tmpdir(), 'millrace-flow-'));

  constructor() {
    this.file = join(this.#folder, 'flow');
    const units = globSync(join(import.meta.dirname, '*.c')).sort();
    const { status, stderr } = spawnSync('gcc', [...flags, ...units, '-o', this.file], { encoding: 'utf8' });
    assert.equal(status, 0, stderr);
  }

  /** Both ends in one host, at one of its own addresses. */
  async run<T>(host: Host, address: string, ...words: readonly (string | number)[]): Promise<T> {
    const result = await this.tryRun(host, address, ...words);
    assert.equal(result.code, 0, `${words.join(' ')}: ${result.signal ?? ''} ${result.stderr}`);
    return JSON.parse(result.stdout) as T;
  }

  async tryRun(host: Host, address: string, ...words: readonly (string | number)[]): ReturnType<Host['run']> {
    const env = { ...process.env, ...this.env };
    return host.run(this.file, [address, ...words.map(String)], { env, signal: AbortSignal.timeout(LIMIT_MS) });
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
