// Tests that each peer is carried to the listeners that it may reach, and gets plain TCP to all
// others: by port and by command, before and after a reload, and explained on both hosts.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { command, DaemonProcess, daemonSettings, type Settings } from '../../../workbench/worlds/daemon-process.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { nobody } from '../attacks/attacks-program.ts';

const [guardedPort, openPort] = [7501, 7502];
/** Says to each client who it is. Not a program of root: its descriptors are not root's to read. */
const serverScript = `
  const [title, port] = process.argv.slice(1);
  process.title = title;
  require('node:net').createServer((socket) => socket.end(socket.remoteAddress))
    .listen(Number(port), '0.0.0.0', () => console.log('listening'));`;
const clientScript = `
  const [host, port] = process.argv.slice(1);
  console.log(process.pid);
  require('node:net').connect(Number(port), host).pipe(process.stdout);`;

before(sweepDeadTests);

describe('peers are accepted', { concurrency: false }, () => {
  let world: ProxyWorld;
  let clients: { readonly a: DaemonProcess; readonly c: DaemonProcess };
  const servers: RunningProgram[] = [];
  before(async () => {
    world = await ProxyWorld.createIdle({ hosts: 3 });
    const c = world.lab.host('c');
    for (const [title, port] of [
      ['guarded', guardedPort],
      ['open', openPort],
    ] as const) {
      const words = [...nobody.slice(1), process.execPath, '-e', serverScript, title, String(port)];
      const server = RunningProgram.start(world.b, nobody[0], words);
      servers.push(server);
      await server.line(/^listening$/);
    }
    await world.start('b', settingsOf([`deny from a to any:${guardedPort}`, 'accept from *']));
    const settings = { host: c, peers: [world.b], folder: world.folder.path, devices: ['soft-shm'] };
    const [first, third] = await Promise.all([
      world.start('a'),
      DaemonProcess.start(c, world.folder.path, daemonSettings(settings)),
    ]);
    clients = { a: first, c: third };
    await Promise.all([first.peerUp(), third.peerUp(), world.running('b').peerUp()]);
  });
  after(async () => {
    await clients?.c.stop();
    await Promise.all(servers.map((server) => server.close()));
    await world?.close();
  });

  /** Of the daemon of b. */
  function settingsOf(accept: readonly string[]): Settings {
    const peers = [world.a, world.lab.host('c')].map(({ name, ipv4 }) => ({ name, address: ipv4 }));
    return { ...world.settingsOf('b'), peers, accept };
  }

  async function millrace({ host, socketPath }: DaemonProcess, ...words: readonly string[]): Promise<string> {
    const { code, stdout, stderr } = await host.run(command, [...words, '--socket', socketPath]);
    assert.equal(code, 0, stderr);
    return stdout;
  }

  async function reload(accept: readonly string[]): Promise<void> {
    world.running('b').configure(settingsOf(accept));
    assert.match(await millrace(world.running('b'), 'reload'), /^taken over: accept\n/);
  }

  /** Waits until the daemon knows of these listeners of b, and of no others. */
  async function isTold(daemon: DaemonProcess, ...ports: readonly number[]): Promise<void> {
    await eventually(`${daemon.host.name} is told of ${ports.join()}`, () =>
      [guardedPort, openPort].every((port) => daemon.isAnnounced(`${world.b.ipv4}:${port}`) === ports.includes(port)),
    );
  }

  /** Connects to b, which must see the true client. The answer is what its own host says of it. */
  async function connect(daemon: DaemonProcess, port: number): Promise<string> {
    const { stdout } = await daemon.host.run(process.execPath, ['-e', clientScript, world.b.ipv4, String(port)]);
    const [pid = '', seen] = stdout.split('\n');
    assert.equal(seen, daemon.host.ipv4);
    return millrace(daemon, 'explain', pid);
  }

  /** A daemon that got no processor for half a second leaves a connect to plain TCP. */
  async function isCarried(daemon: DaemonProcess, port: number): Promise<void> {
    await eventually('it is carried', async () => (await connect(daemon, port)).endsWith('\ncarried\n'));
  }

  /** The server's host is asked why as soon as a program wants to go there. */
  async function isPlain(daemon: DaemonProcess, port: number, why: string): Promise<void> {
    await eventually('it is told why', async () => {
      const explained = await connect(daemon, port);
      assert.match(explained, /\nplain TCP: .*\npeer b/);
      return explained.endsWith(`\npeer b: ${why}\n`);
    });
  }

  /** What b says of a peer and a port of its own. */
  async function explain(peer: string, port: number): Promise<string> {
    return millrace(world.running('b'), 'explain', `${peer}->${world.b.ipv4}:${port}`);
  }

  test('by port: one peer gets plain TCP to what is denied to it, another is carried there', async () => {
    const { a, c } = clients;
    await Promise.all([isTold(a, openPort), isTold(c, guardedPort, openPort)]);
    await isPlain(a, guardedPort, `accept line 1 (deny from a to any:${guardedPort})`);
    await isCarried(a, openPort);
    await isCarried(c, guardedPort);
    const place = `${world.b.ipv4}:${guardedPort}`;
    const denied = `peer a is not accepted at ${place}: accept line 1 (deny from a to any:${guardedPort})\n`;
    assert.equal(await explain('a', guardedPort), denied);
    assert.equal(await millrace(world.running('b'), 'explain', `${world.a.ipv4}:40000->${place}`), denied);
    assert.equal(await explain('c', guardedPort), `peer c is accepted at ${place}: accept line 2 (accept from *)\n`);
  });

  test('by command: after a reload it is decided by whose the listener is', async () => {
    const { a, c } = clients;
    await reload(['deny from c command guarded', 'accept']);
    await Promise.all([isTold(a, guardedPort, openPort), isTold(c, openPort)]);
    await isPlain(c, guardedPort, 'accept line 1 (deny from c command guarded)');
    await isCarried(a, guardedPort);
    await isCarried(c, openPort);
    assert.equal(
      await explain('c', guardedPort),
      `peer c is not accepted at ${world.b.ipv4}:${guardedPort} (guarded): accept line 1 (deny from c command guarded)\n`,
    );
  });

  test('an empty list accepts nobody, and none accepts everybody', async () => {
    const { a, c } = clients;
    await reload([]);
    await Promise.all([isTold(a), isTold(c)]);
    await isPlain(a, openPort, 'no accept line is about it');
    world.running('b').configure({ ...settingsOf([]), accept: undefined });
    world.running('b').signal('SIGHUP');
    await Promise.all([isTold(a, guardedPort, openPort), isTold(c, guardedPort, openPort)]);
    await isCarried(c, guardedPort);
  });
});
