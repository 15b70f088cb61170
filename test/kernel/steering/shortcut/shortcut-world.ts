// Two hosts of a lab: in one, connections take the shortcut; the other one is as it always was.

import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { type Host, Lab } from '../../../../src/lab/index.ts';
import { BpfMap } from '../../../../src/native/index.ts';
import { parseRules, Steering } from '../../../../src/steering/index.ts';
import { temporaryRunDir } from '../../../../workbench/worlds/lab-runs.ts';
import { FlowProgram } from './flow-program.ts';

export class ShortcutWorld implements AsyncDisposable {
  readonly plain: Host;
  readonly short: Host;
  readonly flow: FlowProgram;
  readonly steering: Steering;
  readonly #undo: AsyncDisposableStack;

  static async create(rules = 'shortcut'): Promise<ShortcutWorld> {
    await using undo = new AsyncDisposableStack();
    const runDir = undo.use(temporaryRunDir());
    const lab = undo.use(await Lab.create({ runDir: runDir.path, hosts: ['plain', 'short'] }));
    const flow = new FlowProgram();
    const instance = `shortcut-${randomBytes(4).toString('hex')}`;
    const { cgroup } = lab.host('short');
    const steering = undo.use(Steering.create({ instance, cgroup, rules: parseRules(rules) }));
    return new ShortcutWorld(lab, flow, steering, undo.move());
  }

  private constructor(lab: Lab, flow: FlowProgram, steering: Steering, undo: AsyncDisposableStack) {
    this.plain = lab.host('plain');
    this.short = lab.host('short');
    this.flow = flow;
    this.steering = steering;
    this.#undo = undo;
  }

  get counters(): { readonly redirected: number; readonly byTcp: number } {
    return this.steering.shortcutCounters() ?? { redirected: -1, byTcp: -1 };
  }

  /** What a scenario does on the shortcut, and how many messages took it. */
  async take<T>(...words: readonly (string | number)[]): Promise<{ said: T; redirected: number; byTcp: number }> {
    const before = this.counters;
    const said = await this.flow.run<T>(this.short, '127.0.0.1', ...words);
    const after = this.counters;
    return { said, redirected: after.redirected - before.redirected, byTcp: after.byTcp - before.byTcp };
  }

  /** What the same does by plain TCP. */
  async plainly<T>(...words: readonly (string | number)[]): Promise<T> {
    return this.flow.run<T>(this.plain, '127.0.0.1', ...words);
  }

  /** How many entries the method's maps have. */
  entries(): Readonly<Record<string, number>> {
    const names = ['connecting', 'shortcut_sockets', 'joined'];
    return Object.fromEntries(
      names.map((name) => {
        using map = BpfMap.openPinned(join('/sys/fs/bpf/millrace', this.steering.instance, name));
        return [name, [...map.keys()].length];
      }),
    );
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#undo.disposeAsync();
  }
}
