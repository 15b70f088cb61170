// Two guests on one cable, each with the kernel's RDMA device and a daemon: what the tests of the
// proxy on rxe happen in.

import assert from 'node:assert/strict';
import { parseConfig } from '../../../src/config/index.ts';
import type { Guest } from '../../../src/lab/vm/index.ts';
import type { DaemonStatus, LinkStatus } from '../../../src/status/daemon-status.ts';
import type { LinkEvent } from '../../../src/status/events.ts';
import { GuestPair } from '../guest-pair.ts';
import { GuestProgram } from '../guest-program.ts';
import { GuestPrograms } from '../guest-programs.ts';

const files = ['test/vm/guest/proxy-daemon.ts', 'test/vm/guest/proxy-traffic.ts', 'src/lane/worker.ts'];
const SLOT_BYTES = 256;
const configPath = '/tmp/proxy.json';

export type Name = 'a' | 'b';
export const names = ['a', 'b'] as const;
/** What programs call, and where daemons meet. */
export const addresses = { a: ['10.78.0.1', 'fd78::1'], b: ['10.78.0.2', 'fd78::2'] } as const;
/** Only RDMA goes by these: they can be cut off alone. */
export const rdmaAddresses = { a: '10.79.0.1', b: '10.79.0.2' } as const;

export class ProxyGuests implements AsyncDisposable {
  readonly #pair: GuestPair;
  readonly #programs: GuestPrograms;
  readonly #daemons = new Map<Name, GuestProgram>();

  /** Without daemons. */
  static async boot(): Promise<ProxyGuests> {
    await using undo = new AsyncDisposableStack();
    const programs = undo.use(await GuestPrograms.build(files));
    const pair = undo.use(await GuestPair.boot({ mtu: 4300, memoryMb: 768, cpus: 1 }));
    const guests = new ProxyGuests(pair, programs);
    const prepare = async (name: Name): Promise<void> => {
      const guest = guests.guest(name);
      await guest.addRxe({ device: 'eth0', address: [`${rdmaAddresses[name]}/24`] });
    };
    await Promise.all(names.map(prepare));
    undo.move();
    return guests;
  }

  private constructor(pair: GuestPair, programs: GuestPrograms) {
    this.#pair = pair;
    this.#programs = programs;
  }

  guest(name: Name): Guest {
    return this.#pair.guests[name === 'a' ? 0 : 1];
  }

  daemon(name: Name): GuestProgram {
    const daemon = this.#daemons.get(name);
    assert.ok(daemon !== undefined, `there is no daemon in ${name}`);
    return daemon;
  }

  async startDaemon(name: Name, devices: readonly string[]): Promise<GuestProgram> {
    const guest = this.guest(name);
    const peer = name === 'a' ? 'b' : 'a';
    const config = parseConfig(JSON.stringify(settings(name, peer, devices)), 'proxy.json', {});
    await guest.runOk(['sh', '-c', `cat > ${configPath}`], { input: JSON.stringify(config) });
    const daemon = this.start(name, 'proxy-daemon', configPath);
    this.#daemons.set(name, daemon);
    await daemon.told('ready');
    return daemon;
  }

  async stopDaemon(name: Name): Promise<void> {
    const daemon = this.daemon(name);
    this.#daemons.delete(name);
    await daemon.signal('TERM');
    await daemon.exit();
  }

  /** One of the programs in guest/. */
  start(name: Name, program: string, ...words: readonly string[]): GuestProgram {
    const command = this.#programs.words(`${program}.ts`, ...words);
    return GuestProgram.start(this.guest(name), command, this.#programs.env);
  }

  async status(name: Name): Promise<DaemonStatus> {
    const daemon = this.daemon(name);
    const { count } = daemon;
    await daemon.signal('HUP');
    return (await daemon.told('status', { after: count })) as DaemonStatus;
  }

  /** What the daemon carries by when its link comes up; after so many events. */
  async wireUp(name: Name, after = 0): Promise<string> {
    const isUp = (data: unknown): boolean => (data as LinkEvent).state === 'up';
    return ((await this.daemon(name).told('link', { after, isWanted: isUp })) as LinkEvent).wire;
  }

  /**
   * Waits until the peer has confirmed something that is sent from now on: fewer bytes are
   * unconfirmed than were sent since.
   */
  async hasWorked(name: Name): Promise<void> {
    const link = async (): Promise<LinkStatus> => {
      const found = (await this.status(name)).peers[0]?.links[0];
      assert.ok(found !== undefined, `there is no link in ${name}`);
      return found;
    };
    const { bytesOut } = await link();
    for (;;) {
      const now = await link();
      if (now.state === 'up' && now.slotsUsed * SLOT_BYTES < now.bytesOut - bytesOut) return;
    }
  }

  /** What both daemons told of their links, for the message of a test that fails. */
  linkHistory(): string {
    const lines = (name: Name): readonly string[] =>
      (this.daemon(name).all('link') as LinkEvent[]).map(
        ({ state, wire, reason }) => `  ${name}: ${state} ${wire}${reason}`,
      );
    return `the links so far:\n${names.flatMap(lines).join('\n')}`;
  }

  /**
   * What the daemons and the kernels know of connections by now, for the message of a test in which
   * nothing moves any more.
   */
  async connectionHistory(): Promise<string> {
    const lines = names.map(async (name) => {
      const daemon = this.daemon(name);
      const { count } = daemon;
      await daemon.signal('HUP');
      const [status, connections] = [
        await daemon.told('status', { after: count }),
        await daemon.told('connections', { after: count }),
      ];
      const { stdout } = await this.guest(name).run(['ss', '-tanimoe']);
      return `${name}: ${JSON.stringify({ status, connections })}\n${stdout}`;
    });
    return (await Promise.all(lines)).join('\n');
  }

  /** Waits until a daemon has heard from its peer of so many servers. */
  async announced(name: Name, servers: number): Promise<void> {
    for (;;) {
      const { peers } = await this.status(name);
      if (peers.every(({ state, listeners }) => state === 'up' && listeners >= servers)) return;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#pair[Symbol.asyncDispose]();
    this.#programs[Symbol.dispose]();
  }
}

/**
 * Everything takes ten times as long in a guest, and longer on a busy machine: nobody is to be
 * given up for that.
 */
function settings(name: Name, peer: Name, devices: readonly string[]): object {
  return {
    node: name,
    listen: { addresses: addresses[name] },
    rules: addresses[peer].map((address) => `connect to ${address}`),
    peers: [{ name: peer, address: addresses[peer][0] }],
    insecure: true,
    devices,
    // After the link-local address and the one that programs call; those of IPv6 come last.
    device: { gidIndex: 2 },
    lanes: 1,
    channel: { slotBytes: SLOT_BYTES, windowBytes: '256KiB', deadMs: 20_000, recoverySeconds: 60 },
    // Enough to have a lot under way, and little to wait for at the end.
    socketBufferBytes: '128KiB',
  };
}
