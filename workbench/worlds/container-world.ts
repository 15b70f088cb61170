// Two hosts with daemons, each with containers on a routed bridge network: a container of one host
// reaches those of the other under their own addresses.

import { join } from 'node:path';
import type { Host } from '../../src/lab/index.ts';
import { carryEverything } from './daemon-process.ts';
import { Podman } from './podman.ts';
import { ProxyWorld } from './proxy-world.ts';
import { succeed } from './succeed.ts';

const networks = { a: '10.92.1.0/24', b: '10.92.2.0/24' } as const;

/** For networks of containers that have the same addresses in both hosts, and no route. */
const twinNetwork = '10.93.0.0/24';

export class ContainerWorld implements AsyncDisposable {
  readonly proxy: ProxyWorld;
  readonly a: Podman;
  readonly b: Podman;

  /** Without daemons: containers reach each other by plain TCP. */
  static async create(): Promise<ContainerWorld> {
    await using undo = new AsyncDisposableStack();
    const rules = (to: Host): readonly string[] => [
      ...carryEverything(to),
      `connect to ${to.name === 'a' ? networks.a : networks.b}`,
      `connect to ${twinNetwork}`,
    ];
    const proxy = undo.use(await ProxyWorld.createIdle({ rules }));
    const { a, b } = proxy;
    await succeed(a, 'ip', ['route', 'add', networks.b, 'via', b.ipv4]);
    await succeed(b, 'ip', ['route', 'add', networks.a, 'via', a.ipv4]);
    const podmans = await Promise.all([
      Podman.create(a, 1, join(proxy.folder.path, 'podman-a')),
      Podman.create(b, 2, join(proxy.folder.path, 'podman-b')),
    ]);
    for (const podman of podmans) undo.use(podman);
    undo.move();
    return new ContainerWorld(proxy, ...podmans);
  }

  private constructor(proxy: ProxyWorld, a: Podman, b: Podman) {
    this.proxy = proxy;
    this.a = a;
    this.b = b;
  }

  async startDaemons(): Promise<void> {
    await Promise.all([this.proxy.start('a'), this.proxy.start('b')]);
    await this.proxy.ready();
  }

  /** Whatever runs in the hosts ends with the lab: the containers, and what looks after them. */
  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.a[Symbol.asyncDispose](), this.b[Symbol.asyncDispose]()]);
    await this.proxy.close();
  }
}
