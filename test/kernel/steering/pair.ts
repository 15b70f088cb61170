// Two pairs of hosts with the same server, one carried and one not: what is tried in both can be
// compared.

import type { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { type PlainOptions, World } from '../../../workbench/worlds/world.ts';
import type { BehavioursProgram, Observation } from './behaviours-program.ts';

export const families = ['ipv4', 'ipv6'] as const;
export type Family = (typeof families)[number];

export interface Side<W extends World> {
  readonly world: W;
  readonly server: RunningProgram;
}

export class Pair<W extends World = World> implements AsyncDisposable {
  readonly plain: Side<World>;
  readonly carrying: Side<W>;

  readonly #program: BehavioursProgram;

  static async create<W extends World>(
    program: BehavioursProgram,
    makeCarrying: () => Promise<W>,
    plainOptions: PlainOptions = {},
  ): Promise<Pair<W>> {
    await using undo = new AsyncDisposableStack();
    const plain = undo.use(await World.create(plainOptions));
    const carrying = undo.use(await makeCarrying());
    const servers = await Promise.all([program.serve(plain.serverHost), program.serve(carrying.serverHost)]);
    // The last one that the program opens.
    await carrying.listening(7303);
    undo.move();
    return new Pair(program, { world: plain, server: servers[0] }, { world: carrying, server: servers[1] });
  }

  private constructor(program: BehavioursProgram, plain: Side<World>, carrying: Side<W>) {
    this.#program = program;
    this.plain = plain;
    this.carrying = carrying;
  }

  observe(name: string, { world, server }: Side<World>, family: Family): Promise<Observation> {
    return this.#program.observe(name, world.clientHost, server, world.serverHost[family]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.plain.world.close(), this.carrying.world.close()]);
  }
}

/** The kernel chooses these ports anew each time. */
export function comparable({ client, server }: Pick<Observation, 'client' | 'server'>): object {
  const nameless = (text: string | null): string | null =>
    text?.replaceAll(/:(?:3[2-9]|[45]\d|6\d)\d{3}\b/g, ':any') ?? null;
  return { client: nameless(client), server: nameless(server) };
}
