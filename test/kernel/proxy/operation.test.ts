// Tests what an operator does with daemons that carry: reload, drain, hurry, and start one before
// the other.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { ConnectionStatus } from '../../../src/status/daemon-status.ts';
import type { DaemonProcess } from '../../../workbench/worlds/daemon-process.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { BehavioursProgram } from '../steering/behaviours-program.ts';
import { compile } from '../steering/compile.ts';
import { full } from '../steering/process-figures.ts';

const listenPort = 7300;
const floodPort = 7400;
const floodBytes = 100_000_000;
const holder = join(import.meta.dirname, '../steering/death/hold-connections.ts');

before(sweepDeadTests);
const flood = compile([join(import.meta.dirname, '../steering/backpressure/flood.c')]);
const program = new BehavioursProgram();

describe('operating daemons', { concurrency: false }, () => {
  let world: ProxyWorld;
  let server: RunningProgram;
  before(async () => {
    world = await ProxyWorld.create({ settings: { drainSeconds: 60 } });
    server = await program.serve(world.b);
    await world.listening(listenPort + 3);
  });
  after(() => world?.close());

  /** A conversation that must succeed; whether it was carried. */
  async function converse(): Promise<boolean> {
    const before = world.carried();
    const { client } = await program.observe('nonblocking', world.a, server, world.b.ipv4);
    assert.match(client, /answer 16 from listener 0$/);
    return world.carried() > before;
  }

  /** Until host a's daemon carries to no server of host b. */
  async function withdrawn(): Promise<void> {
    const there = `${world.b.ipv4}:${listenPort}`;
    await eventually(`${there} is not announced`, () => !world.daemons.a.isAnnounced(there));
  }

  /** What its daemon knows of the last conversation. */
  async function last(): Promise<ConnectionStatus> {
    const found = (await world.daemons.a.connections()).filter(
      ({ remote }) => remote === `${world.b.ipv4}:${listenPort}`,
    );
    const newest = found.at(-1);
    assert.ok(newest !== undefined);
    return newest;
  }

  test('a config that is wrong changes nothing, and is told in one line', async () => {
    const { a } = world.daemons;
    // The link is made with the first connection, and told of.
    assert.equal(await converse(), true);
    const before = await a.status();
    const lines = a.log.length;
    writeFileSync(a.configFile, 'node: a\nrules: [connect to nowhere]\n');
    a.signal('SIGHUP');
    await eventually('it has told so', () => a.log.length > lines);
    const { rules, peers } = await a.status();
    assert.deepEqual([rules, peers.map(({ name }) => name)], [before.rules, ['b']]);
    assert.equal(await converse(), true);
    const told = a.log.slice(lines);
    assert.equal(told.length, 1);
    assert.equal(told[0]?.level, 'error');
    assert.match(told[0]?.msg ?? '', /a\.yaml/);
    assert.doesNotMatch(told[0]?.msg ?? '', /\n/);
  });

  test('rules are taken over by SIGHUP: connections go by plain TCP, and are carried again', async () => {
    const { a } = world.daemons;
    a.configure({ ...world.settingsOf('a'), rules: [] });
    a.signal('SIGHUP');
    await a.logged(/reloaded: taken over: rules$/);
    assert.equal(await converse(), false);
    a.configure(world.settingsOf('a'));
    a.signal('SIGHUP');
    await a.logged(/reloaded: taken over: rules$/, 2);
    assert.equal(await converse(), true);
  });

  test('peers are taken over by SIGHUP: one that is none any more is not carried to, and is again when it is back', async () => {
    const { a } = world.daemons;
    a.configure({ ...world.settingsOf('a'), peers: [] });
    a.signal('SIGHUP');
    await a.logged(/reloaded: taken over: peers$/);
    assert.deepEqual((await a.status()).peers, []);
    await withdrawn();
    assert.equal(await converse(), false);
    assert.equal((await last()).mode, 'plain');
    a.configure(world.settingsOf('a'));
    a.signal('SIGHUP');
    await world.ready();
    await world.listening(listenPort);
    assert.equal(await converse(), true);
  });

  test('connections that are refused, or left to plain TCP, are told with the reason while somebody listens', async () => {
    const { a, b } = world.daemons;
    const port = 7500;
    const net = "const net = require('node:net');";
    const listen = `${net} net.createServer().listen(${port}, '${world.b.ipv4}', () => console.log('listening'))`;
    const listener = RunningProgram.start(world.b, process.execPath, ['-e', listen], { endWith: 'SIGKILL' });
    await listener.line(/^listening$/);
    await world.listening(port);
    const reloaded = /reloaded: taken over: log$/;
    for (const name of ['a', 'b'] as const) {
      const daemon = world.daemons[name];
      daemon.configure({ ...world.settingsOf(name), log: { format: 'json', level: 'debug' } });
      daemon.signal('SIGHUP');
      await daemon.logged(reloaded);
    }
    // Lanes are told a moment later.
    await eventually('connections are told', async () => {
      await converse();
      const isTold = ({ log }: DaemonProcess): boolean => log.some(({ msg }) => msg.endsWith(' opened'));
      return isTold(a) && isTold(b);
    });
    // The server ends unnoticed by its daemon, which then cannot call it.
    b.signal('SIGSTOP');
    await listener.close();
    const call = `${net} const socket = net.connect(${port}, '${world.b.ipv4}', () => console.log('connected'));
      socket.on('error', ({ code }) => console.log(code));`;
    await using client = RunningProgram.start(world.a, process.execPath, ['-e', call]);
    await client.line(/^connected$/);
    b.signal('SIGCONT');
    assert.equal(await client.line(/^E/), 'ECONNRESET');
    const there = `${world.b.ipv4}:${port}`;
    await a.logged(new RegExp(`-> ${there} refused: connect to the server: ECONNREFUSED$`));
    await b.logged(new RegExp(`-> ${there} refused: \\w`));
    // Nobody announces this one.
    const closed = net.concat(call.slice(net.length).replace(String(port), String(port + 1)));
    await using other = RunningProgram.start(world.a, process.execPath, ['-e', closed]);
    assert.equal(await other.line(/^E/), 'ECONNREFUSED');
    await a.logged(new RegExp(`-> ${world.b.ipv4}:${port + 1} plain: \\S`));
    for (const name of ['a', 'b'] as const) {
      const daemon = world.daemons[name];
      daemon.configure(world.settingsOf(name));
      daemon.signal('SIGHUP');
      await daemon.logged(reloaded, 2);
    }
  });

  for (const name of ['a', 'b'] as const) {
    test(`SIGTERM to ${name}: a carried transfer ends in order, new connections go by plain TCP, and then it exits with 0`, async () => {
      const daemon = world.daemons[name];
      await using receiver = RunningProgram.start(world.b, flood, ['receive', String(floodPort)], {
        endWith: 'SIGKILL',
      });
      await receiver.line(/^listening$/);
      await world.listening(floodPort);
      const words = ['send', world.b.ipv4, String(floodPort), 'level', String(floodBytes)];
      await using sender = RunningProgram.start(world.a, flood, words, { endWith: 'SIGKILL' });
      await receiver.line(/^accepted$/);
      await full([world.a, world.b]);
      daemon.signal('SIGTERM');
      await daemon.logged(/: draining$/);
      assert.equal((await daemon.status()).state, 'draining');
      // Its own programs' connects it does not take any more; of its servers the peer has to hear
      // first.
      if (name === 'b') await withdrawn();
      assert.equal(await converse(), false);
      assert.equal(daemon.hasExited, false);
      receiver.signal('SIGCONT');
      assert.equal(await receiver.line(/./), `${floodBytes} bytes, right`);
      await sender.line(/^offered all/);
      await daemon.exit();
      assert.equal(daemon.exitCode, 0);
      assert.equal(daemon.isPinned, false);
      await world.start(name);
      await world.ready();
      await world.listening(listenPort);
      assert.equal(await converse(), true);
    });
  }

  test('a second SIGTERM resets what is still open, and it exits with 0 at once', async () => {
    const { a } = world.daemons;
    const words = [holder, world.b.ipv4, String(listenPort), '10', 'once'];
    await using held = RunningProgram.start(world.a, process.execPath, words);
    await held.line(/^held$/);
    a.signal('SIGTERM');
    await a.logged(/: draining$/);
    assert.equal(a.hasExited, false);
    a.signal('SIGTERM');
    await a.exit();
    assert.equal(a.exitCode, 0);
    const endings = JSON.parse(await held.line(/^\[/)) as { readonly code: string }[];
    assert.deepEqual(new Set(endings.map(({ code }) => code)), new Set(['ECONNRESET']));
    await world.start('a');
    await world.ready();
  });

  test('without the daemon of the peer, connections go by plain TCP, and it is told why', async () => {
    await world.daemons.b.stop();
    await withdrawn();
    assert.equal(await converse(), false);
    const { mode, reason } = await last();
    assert.equal(mode, 'plain');
    assert.match(reason, /peer b is (?:down|connecting)/);
    await world.start('b');
    await world.ready();
    await world.listening(listenPort);
    assert.equal(await converse(), true);
    const { state, listeners } = await world.daemons.a.peer();
    assert.equal(state, 'up');
    assert.ok(listeners > 0);
  });
});
