// The C program that attackers and their victims run (attacks.c): compiled where every user may run
// it, and run in hosts.

import assert from 'node:assert/strict';
import { chmodSync, copyFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Host } from '../../../src/lab/index.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { succeed } from '../../../workbench/worlds/succeed.ts';
import { temporaryFolder } from '../../../workbench/worlds/temporary-folder.ts';
import { compile } from '../steering/compile.ts';

/** A user without rights. */
export const nobody = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', '--'] as const;

interface Checked {
  readonly right: number;
  readonly wrong: number;
  readonly failed: number;
  /** Why the last one failed. */
  readonly error: string;
}

export class AttacksProgram implements Disposable {
  readonly file: string;
  readonly #folder = temporaryFolder('attacks');

  constructor() {
    chmodSync(this.#folder.path, 0o755);
    this.file = join(this.#folder.path, 'attacks');
    // Not every user may enter the folder where it was compiled.
    copyFileSync(compile([join(import.meta.dirname, 'attacks.c')]), this.file);
  }

  /** `as`: words before the command, as those that make it somebody else's. */
  start(host: Host, words: readonly (string | number)[], as: readonly string[] = []): RunningProgram {
    const [program, ...rest] = [...as, this.file, ...words.map(String)];
    assert.ok(program !== undefined);
    return RunningProgram.start(host, program, rest, { isWritable: true, endWith: 'SIGKILL' });
  }

  async serve(host: Host, port: number): Promise<RunningProgram> {
    const server = this.start(host, ['serve', port]);
    await server.line(/^listening$/);
    return server;
  }

  /** Connects so often, and compares the address that the server saw with the client's own. */
  async check(host: Host, words: readonly (string | number)[], as: readonly string[] = []): Promise<Checked> {
    const [program, ...rest] = [...as, this.file, 'check', ...words.map(String)];
    assert.ok(program !== undefined);
    const said = await succeed(host, program, rest);
    const found = /^right (\d+) wrong (\d+) failed (\d+) (\S+)$/m.exec(said);
    assert.ok(found, said);
    const [, right, wrong, failed, error = ''] = found;
    return { right: Number(right), wrong: Number(wrong), failed: Number(failed), error };
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}
