// The C program that tries socket behaviours (behaviours/*.c): compiled, its list of behaviours,
// and runs of it in two hosts.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import type { Host } from '../../../src/lab/index.ts';
import { TIMEOUT_MS } from '../../../workbench/worlds/eventually.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { compile, type Linking } from './compile.ts';

const sources = join(import.meta.dirname, 'behaviours');

export interface Behaviour {
  readonly name: string;
  readonly port: number;
  readonly hasServerLine: boolean;
}

/** What both ends observed; lines without the name. */
export interface Observation {
  readonly client: string;
  /** Null where the server says nothing. */
  readonly server: string | null;
  /** How long things took; not to be compared. */
  readonly remarks: string;
}

export class BehavioursProgram {
  readonly file: string;
  readonly list: readonly Behaviour[];

  constructor(linking: Linking = 'dynamic') {
    this.file = compile(globSync(join(sources, '*.c')).sort(), linking);
    const lines = execFileSync(this.file, ['list'], { encoding: 'utf8' }).trim().split('\n');
    this.list = lines.map((line) => {
      const [name = '', port, serverLines] = line.split(' ');
      return { name, port: Number(port), hasServerLine: serverLines === '1' };
    });
  }

  portsOf(names: readonly string[] = this.list.map(({ name }) => name)): readonly number[] {
    return this.list.filter(({ name }) => names.includes(name)).map(({ port }) => port);
  }

  async serve(host: Host): Promise<RunningProgram> {
    const server = RunningProgram.start(host, this.file, ['server'], { endWith: 'SIGKILL' });
    await server.line(/^ready$/);
    return server;
  }

  async observe(name: string, client: Host, server: RunningProgram, address: string): Promise<Observation> {
    const behaviour = this.list.find((one) => one.name === name);
    assert.ok(behaviour, `no behaviour ${name}`);
    const { stdout, stderr, code } = await client.run(this.file, ['client', address, name], {
      signal: AbortSignal.timeout(2 * TIMEOUT_MS),
    });
    const prefix = `${name}: `;
    const told = behaviour.hasServerLine ? await server.line(new RegExp(`^${prefix}`)) : null;
    assert.equal(code, 0, `${name}: ${stdout}${stderr}`);
    return {
      client: stdout.trimEnd().slice(prefix.length),
      server: told?.slice(prefix.length) ?? null,
      remarks: stderr.trim(),
    };
  }
}
