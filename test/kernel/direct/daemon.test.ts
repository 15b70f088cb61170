// Direct connections with a daemon as people start it: between network namespaces, through NAT, and
// when a program or the daemon is killed.

import assert from 'node:assert/strict';
import { existsSync, mkdirSync, rmdirSync, statSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { messageKinds } from '../../../src/direct/layout.ts';
import { type Host, Lab } from '../../../src/lab/index.ts';
import { type Address, Fd, inNetns, ip, Socket } from '../../../src/native/index.ts';
import { directSocketPath } from '../../../src/system/index.ts';
import { DaemonProcess, daemonSettings } from '../../../workbench/worlds/daemon-process.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests, temporaryRunDir } from '../../../workbench/worlds/lab-runs.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { succeed } from '../../../workbench/worlds/succeed.ts';
import { temporaryFolder } from '../../../workbench/worlds/temporary-folder.ts';
import { Conversation, hangUp } from './conversation.ts';
import { type Ends, tcpPair } from './tcp-pair.ts';

const { arena, demote, promote } = messageKinds;
const program = fileURLToPath(new URL('promoted-program.ts', import.meta.url));

before(sweepDeadTests);

describe('direct connections of a host', { concurrency: false }, () => {
  const undo = new AsyncDisposableStack();
  let [a, b, c]: (Host | undefined)[] = [];
  let daemon: DaemonProcess;
  let path: string;
  let restart: () => Promise<DaemonProcess>;

  before(async () => {
    const runDir = undo.use(temporaryRunDir());
    const lab = undo.use(await Lab.create({ runDir: runDir.path, hosts: 3 }));
    const folder = undo.use(temporaryFolder('direct'));
    [a, b, c] = ['a', 'b', 'c'].map((name) => lab.host(name));
    const host = a ?? assert.fail();
    const settings = daemonSettings({ host, peers: [], folder: folder.path, devices: ['soft-shm'] });
    restart = () => DaemonProcess.start(host, folder.path, settings);
    daemon = await restart();
    path = directSocketPath(daemon.instance, folder.path);
  });
  after(async () => {
    await daemon?.stop();
    await undo.disposeAsync();
  });

  /** Makes sockets in a host's namespace. */
  const within =
    (host: Host | undefined) =>
    <T>(make: () => T): T => {
      using namespace = Fd.open(host?.namespaceFile ?? assert.fail(), 0);
      return inNetns(namespace, make);
    };

  async function assertPromoted({ client, acceptor }: Ends): Promise<void> {
    using one = await Conversation.begin(path);
    using other = await Conversation.begin(path);
    one.offer(1, client.fd);
    other.offer(1, acceptor.fd);
    assert.equal((await one.expect(arena)).arena, (await other.expect(arena)).arena);
    const [left, right] = [await one.expect(promote), await other.expect(promote)];
    assert.deepEqual([left.slot, left.party], [right.slot, 1 - right.party]);
    const { direct } = await daemon.status();
    assert.deepEqual(
      { ...direct, promoted: 0 },
      { programs: 2, waiting: 0, connections: 1, mirrored: 0, promoted: 0, declined: 0 },
    );
  }

  const ended = (): Promise<void> =>
    eventually('all programs have ended', async () => (await daemon.status()).direct.programs === 0);

  test('every user may connect to its socket', () => {
    assert.equal(statSync(path).mode & 0o777, 0o666);
  });

  test('the ends of a connection between two network namespaces are found', async () => {
    for (const listen of [ip(b?.ipv4 ?? '', 0), ip(b?.ipv6 ?? '', 0)]) {
      using ends = await tcpPair({ atClient: within(a), atServer: within(b), listen });
      await assertPromoted(ends);
      await ended();
    }
  });

  test('through NAT of both addresses, to a server that answers by SYN cookies', async () => {
    const [middle, server] = [b ?? assert.fail(), c ?? assert.fail()];
    await succeed(middle, 'sysctl', ['-qw', 'net.ipv4.ip_forward=1']);
    await succeed(server, 'sysctl', ['-qw', 'net.ipv4.tcp_syncookies=2']);
    const rules = [
      'add table ip nat',
      'add chain ip nat in { type nat hook prerouting priority -100 ; }',
      'add chain ip nat out { type nat hook postrouting priority 100 ; }',
      `add rule ip nat in tcp dport 8000 dnat to ${server.ipv4}:9000`,
      'add rule ip nat out masquerade',
    ];
    await succeed(middle, 'nft', ['-f', '-'], `${rules.join('\n')}\n`);
    const connect = (): Address => ip(middle.ipv4, 8000);
    using ends = await tcpPair({ atClient: within(a), atServer: within(c), listen: ip(server.ipv4, 9000), connect });
    assert.deepEqual(hostOf(ends.acceptor.peerAddress), middle.ipv4);
    await assertPromoted(ends);
    await ended();
  });

  test('a program that is killed while promoted: the other is told', async () => {
    const host = a ?? assert.fail();
    using listener = within(host)(() => Socket.stream('ipv4'));
    listener.bind(ip('127.0.0.1', 0));
    listener.listen();
    const at = listener.localAddress;
    const port = at.family === 'unix' ? 0 : at.port;
    await using child = RunningProgram.start(host, process.execPath, [program, path, '127.0.0.1', String(port)]);
    let accepted: Socket | undefined;
    await eventually('it connects', () => {
      accepted = listener.accept();
      return accepted !== undefined;
    });
    using acceptor = accepted ?? assert.fail();
    using own = await Conversation.begin(path);
    own.offer(5, acceptor.fd);
    await own.expect(arena);
    await own.expect(promote);
    await child.line(/^promoted$/);
    child.signal('SIGKILL');
    assert.equal((await own.expect(demote)).connection, 5);
    own.withdraw(5);
    await own.settle();
    assert.equal((await daemon.status()).direct.connections, 0);
  });

  test('a daemon that is killed hangs up, and the next one has its place; one that is stopped leaves none', async () => {
    using before = await Conversation.begin(path);
    await daemon.kill();
    assert.equal(await before.next(), hangUp);
    daemon = await restart();
    using ends = await tcpPair();
    await assertPromoted(ends);
    await daemon.stop();
    assert.equal(existsSync(path), false);
  });

  test('where the daemon cannot serve programs it says so once, and runs all the same', async () => {
    mkdirSync(path);
    daemon = await restart();
    const { direct, state } = await daemon.status();
    assert.deepEqual([state, direct.programs], ['ready', 0]);
    assert.equal(daemon.log.filter(({ msg }) => msg.includes('stay on TCP')).length, 1);
    await daemon.stop();
    rmdirSync(path);
  });
});

function hostOf(address: Address): string {
  return address.family === 'unix' ? '' : address.host;
}
