// One host of a lab: a namespace with an address, a cgroup, and the programs started in both.

import type { ChildProcess, SpawnOptions } from 'node:child_process';
import { accessSync, constants, existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MillraceError, UsageError } from '../errors.ts';
import { cgroupOfLab } from './cgroup-tree.ts';
import { namespaceFile } from './network.ts';
import { explainPermission } from './permission.ts';
import { collect, findProgram, type ProgramResult, requireTool, spawnInCgroup } from './program.ts';
import type { LabRecord } from './record.ts';
import { addressesOf, hostIndexOf, namespaceOf } from './spec.ts';

export interface RunOptions {
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  /** What the program reads on its standard input. */
  readonly input?: string;
  /** Kills the program; its children are killed when the lab is removed. */
  readonly signal?: AbortSignal;
}

/** Owns nothing: it is valid while its lab is up. */
export class Host {
  readonly name: string;
  readonly labId: string;
  readonly ipv4: string;
  readonly ipv6: string;
  /** Its name for `ip netns`. */
  readonly namespace: string;
  /** The file for setns() and `nsenter --net=`. */
  readonly namespaceFile: string;
  readonly cgroup: string;
  readonly #record: LabRecord;
  readonly #env: NodeJS.ProcessEnv;

  /** `env` is added to the environment of each program. */
  constructor(record: LabRecord, name: string, env: NodeJS.ProcessEnv = {}) {
    this.#record = record;
    this.#env = env;
    const { ipv4, ipv6 } = addressesOf(hostIndexOf(record, name));
    this.name = name;
    this.labId = record.id;
    this.ipv4 = ipv4;
    this.ipv6 = ipv6;
    this.namespace = namespaceOf(record.id, name);
    this.namespaceFile = namespaceFile(this.namespace);
    this.cgroup = join(cgroupOfLab(record.id), name);
  }

  /** The same host, whose programs have these variables in addition. */
  withEnv(env: NodeJS.ProcessEnv): Host {
    return new Host(this.#record, this.name, { ...this.#env, ...env });
  }

  /**
   * Starts a program in the host's namespace and cgroup. The child is the program itself, with its
   * pid, signals and exit status. The shell that enters the cgroup drops environment variables
   * whose names are no identifiers.
   */
  spawn(command: string, args: readonly string[] = [], options: SpawnOptions = {}): ChildProcess {
    this.#checkEnterable(command);
    const cwd = options.cwd instanceof URL ? fileURLToPath(options.cwd) : options.cwd;
    if (cwd !== undefined && !existsSync(cwd)) {
      throw new UsageError(`run ${command} in host ${this.name}: the working directory ${cwd} does not exist`);
    }
    // The program is looked up here, because the shell would report it only on the program's
    // standard error.
    const env = { ...(options.env ?? process.env), ...this.#env };
    if (findProgram(command, env.PATH, cwd) === null) {
      const where = command.includes('/') ? 'no executable file there' : 'no such program in PATH';
      throw new UsageError(`run ${command} in host ${this.name}: ${where}`);
    }
    const enter = [requireTool('nsenter', 'util-linux'), `--net=${this.namespaceFile}`, '--', command, ...args];
    return spawnInCgroup(this.cgroup, enter, { ...options, env });
  }

  /** Runs a program to its end. A status other than 0 is a result, not an error. */
  async run(command: string, args: readonly string[] = [], options: RunOptions = {}): Promise<ProgramResult> {
    const { input, ...rest } = options;
    return collect(this.spawn(command, args, { ...rest, killSignal: 'SIGKILL' }), input);
  }

  #checkEnterable(command: string): void {
    const attempt = `run ${command} in host ${this.name}`;
    try {
      accessSync(join(this.cgroup, 'cgroup.procs'), constants.W_OK);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw explainPermission(attempt, error);
      throw new MillraceError('MILLRACE_ERR_NOT_RUNNING', `${attempt}: lab ${this.labId} was taken down`);
    }
  }
}
