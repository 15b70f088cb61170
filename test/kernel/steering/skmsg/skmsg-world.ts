// A host of a lab, or two, whose connections to a few ports are taken over, with a carrier in this
// process between their ends.

import { randomBytes } from 'node:crypto';
import { dirname } from 'node:path';
import { type Host, Lab } from '../../../../src/lab/index.ts';
import { parseIpEndpoint, parseRules, type SkmsgPool, Steering } from '../../../../src/steering/index.ts';
import { temporaryRunDir } from '../../../../workbench/worlds/lab-runs.ts';
import { FlowProgram } from '../shortcut/flow-program.ts';
import { LocalCarrier } from './local-carrier.ts';

export const SERVER_PORT = 7000;

export class SkmsgWorld implements AsyncDisposable {
  readonly host: Host;
  /** Another network namespace, steered as well where the world was made so. */
  readonly other: Host;
  readonly flow: FlowProgram;
  readonly steering: Steering;
  readonly pool: SkmsgPool;
  readonly carrier: LocalCarrier;
  readonly #undo: AsyncDisposableStack;

  static async create(poolSize = 64, steered: 'one host' | 'both hosts' = 'one host'): Promise<SkmsgWorld> {
    await using undo = new AsyncDisposableStack();
    const runDir = undo.use(temporaryRunDir());
    const lab = undo.use(await Lab.create({ runDir: runDir.path }));
    const flow = undo.use(new FlowProgram());
    flow.env = { FLOW_SERVER_PORT: String(SERVER_PORT) };
    const instance = `skmsg-${randomBytes(4).toString('hex')}`;
    const steering = undo.use(
      Steering.create({
        instance,
        cgroup: steered === 'one host' ? lab.host('a').cgroup : dirname(lab.host('a').cgroup),
        rules: parseRules(`skmsg to 127.0.0.1:${SERVER_PORT}`),
      }),
    );
    steering.serve({});
    steering.announce(parseIpEndpoint(`127.0.0.1:${SERVER_PORT}`));
    const pool = undo.use(steering.openSkmsgPool({ size: poolSize }));
    const carrier = undo.use(new LocalCarrier(pool));
    return new SkmsgWorld([lab.host('a'), lab.host('b')], flow, { steering, pool, carrier }, undo.move());
  }

  private constructor(
    [host, other]: readonly [Host, Host],
    flow: FlowProgram,
    parts: { readonly steering: Steering; readonly pool: SkmsgPool; readonly carrier: LocalCarrier },
    undo: AsyncDisposableStack,
  ) {
    this.host = host;
    this.other = other;
    this.flow = flow;
    this.steering = parts.steering;
    this.pool = parts.pool;
    this.carrier = parts.carrier;
    this.#undo = undo;
  }

  async run<T>(...words: readonly (string | number)[]): Promise<T> {
    return this.flow.run<T>(this.host, '127.0.0.1', ...words);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#undo.disposeAsync();
  }
}
