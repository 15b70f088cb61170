// A host of a lab whose connections to a few ports are taken over, with a relay of this process between their ends.

import { randomBytes } from 'node:crypto';
import { type Host, Lab } from '../../../src/lab/index.ts';
import { parseEndpoint, parseRules, type SkmsgPool, Steering } from '../../../src/steering/index.ts';
import { temporaryRunDir } from '../fixtures/lab-world.ts';
import { FlowProgram } from '../shortcut/flow-program.ts';
import { LocalRelay } from './local-relay.ts';

export const SERVER_PORT = 7000;

export class SkmsgWorld implements AsyncDisposable {
  readonly host: Host;
  readonly flow: FlowProgram;
  readonly steering: Steering;
  readonly pool: SkmsgPool;
  readonly relay: LocalRelay;
  readonly #undo: AsyncDisposableStack;

  static async create(poolSize = 64): Promise<SkmsgWorld> {
    await using undo = new AsyncDisposableStack();
    const runDir = undo.use(temporaryRunDir());
    const lab = undo.use(await Lab.create({ runDir: runDir.path }));
    const flow = undo.use(new FlowProgram());
    flow.env = { FLOW_CALLEE_PORT: String(SERVER_PORT) };
    const instance = `skmsg-${randomBytes(4).toString('hex')}`;
    const steering = undo.use(
      Steering.create({
        instance,
        cgroup: lab.host('a').cgroup,
        rules: parseRules(`skmsg to 127.0.0.1:${SERVER_PORT}`),
      }),
    );
    steering.serve({});
    steering.announce(parseEndpoint(`127.0.0.1:${SERVER_PORT}`));
    const pool = undo.use(steering.openSkmsgPool({ size: poolSize }));
    const relay = undo.use(new LocalRelay(pool));
    return new SkmsgWorld(lab.host('a'), flow, { steering, pool, relay }, undo.move());
  }

  private constructor(
    host: Host,
    flow: FlowProgram,
    parts: { readonly steering: Steering; readonly pool: SkmsgPool; readonly relay: LocalRelay },
    undo: AsyncDisposableStack,
  ) {
    this.host = host;
    this.flow = flow;
    this.steering = parts.steering;
    this.pool = parts.pool;
    this.relay = parts.relay;
    this.#undo = undo;
  }

  async run<T>(...words: readonly (string | number)[]): Promise<T> {
    return this.flow.run<T>(this.host, '127.0.0.1', ...words);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#undo.disposeAsync();
  }
}
