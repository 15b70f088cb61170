// The C program that makes two sockets talk (*.c beside this): compiled, and runs of it in a host.

import assert from 'node:assert/strict';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import type { Host } from '../../../../src/lab/index.ts';
import { compile } from '../compile.ts';

const LIMIT_MS = 100_000;

export class FlowProgram {
  readonly file = compile(globSync(join(import.meta.dirname, '*.c')).sort());
  /**
   * FLOW_CLIENT_PORT and FLOW_SERVER_PORT choose the ports, FLOW_FIRST_SEQ the client's first
   * sequence number, FLOW_RECEIVE_BUFFER the buffer of one that stands still.
   */
  env: Readonly<Record<string, string>> = {};

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
}
