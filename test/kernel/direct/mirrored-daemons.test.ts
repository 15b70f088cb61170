// Direct connections of programs on two hosts, with daemons as people start them: the daemons find
// both ends, their lanes mirror the slots, and whatever dies, the programs are told.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { DirectProgram } from '../../../src/channel/fixtures/direct-program.ts';
import { MappedArena } from '../../../src/direct/arena/index.ts';
import { messageKinds, WITH_LANE } from '../../../src/direct/layout.ts';
import { type Host, Lab } from '../../../src/lab/index.ts';
import { type Address, EventFd, Fd, inNetns, ip, SharedMemory } from '../../../src/native/index.ts';
import type { DirectStatus } from '../../../src/status/index.ts';
import { directSocketPath } from '../../../src/system/index.ts';
import { DaemonProcess, daemonSettings } from '../../../workbench/worlds/daemon-process.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests, temporaryRunDir } from '../../../workbench/worlds/lab-runs.ts';
import { succeed } from '../../../workbench/worlds/succeed.ts';
import { temporaryFolder } from '../../../workbench/worlds/temporary-folder.ts';
import { Conversation, hangUp } from './conversation.ts';
import { type Ends, tcpPair } from './tcp-pair.ts';

const { arena, promote } = messageKinds;

before(sweepDeadTests);

/** A program with one direct connection. */
class End implements Disposable {
  readonly conversation: Conversation;
  readonly token: bigint;
  readonly program: DirectProgram;

  static async offer(path: string, fd: number): Promise<() => Promise<End>> {
    const conversation = await Conversation.begin(path);
    conversation.offer(7, fd);
    return async () => {
      const { fds, value, token: flags } = await conversation.expect(arena);
      assert.equal(flags, BigInt(WITH_LANE));
      const { slot, party, token } = await conversation.expect(promote);
      assert.equal(party, 0);
      const [memory = assert.fail(), own = assert.fail(), other = assert.fail()] = fds;
      const doorbells = { own: EventFd.adopt(own.release()), other: EventFd.adopt(other.release()) };
      const mapped = new MappedArena(SharedMemory.open(memory), value, 0, doorbells);
      return new End(conversation, token, new DirectProgram(mapped, slot));
    };
  }

  private constructor(conversation: Conversation, token: bigint, program: DirectProgram) {
    this.conversation = conversation;
    this.token = token;
    this.program = program;
  }

  [Symbol.dispose](): void {
    this.conversation.close();
    this.program.arena.close();
  }
}

describe('direct connections between hosts', { concurrency: false }, () => {
  const undo = new AsyncDisposableStack();
  let hosts: readonly Host[] = [];
  const daemons = new Map<Host, DaemonProcess>();
  let folder: string;

  const hostOf = (index: number): Host => hosts[index] ?? assert.fail();
  const daemonOf = (index: number): DaemonProcess => daemons.get(hostOf(index)) ?? assert.fail();

  async function start(index: number): Promise<void> {
    const host = hostOf(index);
    const peers = hosts.slice(0, 2).filter((each) => each !== host);
    const settings = { ...daemonSettings({ host, peers, folder, devices: ['soft-shm'] }), rules: [] };
    daemons.set(host, await DaemonProcess.start(host, folder, settings));
  }

  async function untilUp(): Promise<void> {
    for (const daemon of daemons.values()) {
      await eventually('they are peers', async () => (await daemon.peer()).state === 'up');
    }
  }

  before(async () => {
    const runDir = undo.use(temporaryRunDir());
    const lab = undo.use(await Lab.create({ runDir: runDir.path, hosts: 3 }));
    folder = undo.use(temporaryFolder('direct-hosts')).path;
    hosts = ['a', 'b', 'c'].map((name) => lab.host(name));
    await Promise.all([start(0), start(1)]);
    await untilUp();
  });
  after(async () => {
    await Promise.all(Array.from(daemons.values(), (daemon) => daemon.stop()));
    await undo.disposeAsync();
  });

  const within =
    (index: number) =>
    <T>(make: () => T): T => {
      using namespace = Fd.open(hostOf(index).namespaceFile, 0);
      return inNetns(namespace, make);
    };

  /** From host a to host b. */
  const connect = (listen: Address, to?: () => Address): Promise<Ends> =>
    tcpPair({ atClient: within(0), atServer: within(1), listen, ...(to !== undefined && { connect: to }) });

  async function promoted({ client, acceptor }: Ends, isClientFirst = true): Promise<readonly [End, End]> {
    const offers = [() => offerAt(0, client.fd), () => offerAt(1, acceptor.fd)] as const;
    const first = await (isClientFirst ? offers[0] : offers[1])();
    const second = await (isClientFirst ? offers[1] : offers[0])();
    const [one, other] = [await first(), await second()];
    assert.equal(one.token, other.token);
    return isClientFirst ? [one, other] : [other, one];
  }

  const offerAt = (index: number, fd: number): ReturnType<typeof End.offer> =>
    End.offer(directSocketPath(daemonOf(index).instance, folder), fd);

  /** Bytes go both ways. */
  async function talk(ends: readonly [End, End], bytes: number): Promise<void> {
    const programs = ends.map(({ program }) => program);
    for (const program of programs) program.look();
    await eventually('all has come', () => {
      for (const program of programs) {
        program.step();
        if (program.position < 0 && program.mayBegin) program.begin(1000);
        if (program.position >= 0 && program.isSeen) program.write(bytes - program.sent);
        program.read(65_536);
      }
      return programs.every(({ received }) => received === bytes);
    });
  }

  const status = async (index: number): Promise<DirectStatus> => (await daemonOf(index).status()).direct;

  /** Nothing is kept of programs that have ended. */
  async function ended(index: number): Promise<void> {
    await eventually('all is given back', async () => {
      const { programs, waiting, connections, mirrored } = await status(index);
      return programs + waiting + connections + mirrored === 0;
    });
  }

  test('bytes go from program to program, whichever end is offered first, by IPv4 and IPv6', async () => {
    for (const listen of [ip(hostOf(1).ipv4, 0), ip(hostOf(1).ipv6, 0)]) {
      for (const isClientFirst of [true, false]) {
        using tcp = await connect(listen);
        const [one, other] = await promoted(tcp, isClientFirst);
        using _one = one;
        using _other = other;
        await talk([one, other], 1_000_000);
        for (const index of [0, 1]) {
          const { connections, mirrored, waiting } = await status(index);
          assert.deepEqual([connections, mirrored, waiting], [1, 1, 0]);
        }
      }
      for (const index of [0, 1]) await ended(index);
    }
  });

  test('through NAT of both addresses', async () => {
    const middle = hostOf(2);
    await succeed(middle, 'sysctl', ['-qw', 'net.ipv4.ip_forward=1']);
    const rules = [
      'add table ip nat',
      'add chain ip nat in { type nat hook prerouting priority -100 ; }',
      'add chain ip nat out { type nat hook postrouting priority 100 ; }',
      `add rule ip nat in tcp dport 8000 dnat to ${hostOf(1).ipv4}:9000`,
      'add rule ip nat out masquerade',
    ];
    await succeed(middle, 'nft', ['-f', '-'], `${rules.join('\n')}\n`);
    using tcp = await connect(ip(hostOf(1).ipv4, 9000), () => ip(middle.ipv4, 8000));
    const [one, other] = await promoted(tcp);
    using _one = one;
    using _other = other;
    await talk([one, other], 1000);
  });

  test('a program that ends: the other one gets what it wrote, and knows where that ends', async () => {
    using tcp = await connect(ip(hostOf(1).ipv4, 0));
    const [one, other] = await promoted(tcp);
    using _other = other;
    await talk([one, other], 1000);
    one.program.write(5000);
    one[Symbol.dispose]();
    await eventually('it knows the end', () => {
      other.program.step();
      other.program.read(65_536);
      return other.program.inEnd === 1000 + 6000;
    });
    assert.equal(other.program.received, 6000);
    await ended(0);
    other.conversation.withdraw(7);
    await other.conversation.settle();
    await eventually('the slot is free', async () => (await status(1)).connections === 0);
  });

  test('a daemon that is killed: the other host’s program is told, and both are found again by the next one', async () => {
    using tcp = await connect(ip(hostOf(1).ipv4, 0));
    const [one, other] = await promoted(tcp);
    using _one = one;
    using _other = other;
    await talk([one, other], 1000);
    await daemonOf(1).kill();
    await eventually('it is lost', () => one.program.isLost);
    one.conversation.withdraw(7);
    await one.conversation.settle();
    one.conversation.offer(8, tcp.client.fd);
    await start(1);
    // The one that waits is told to the daemon that comes up.
    using found = await (await offerAt(1, tcp.acceptor.fd))();
    assert.equal(found.token, one.token);
    // By another lane it has another arena.
    let again = await one.conversation.next();
    if (again !== hangUp && again.kind === arena) again = await one.conversation.next();
    assert.ok(again !== hangUp && again.kind === promote);
    assert.deepEqual([again.connection, again.token], [8, one.token]);
  });
});
