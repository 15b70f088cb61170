// Tests of rules from outside: wrong ones leave nothing behind, first match decides, and changes
// under load lose nothing.

import assert from 'node:assert/strict';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { command, type Settings } from '../../../workbench/worlds/daemon-process.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { instanceOf } from '../../../workbench/worlds/pinned-instance.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { succeed } from '../../../workbench/worlds/succeed.ts';
import { attachedTo } from '../native/kernel-objects.ts';
import { BehavioursProgram } from './behaviours-program.ts';

const pins = '/sys/fs/bpf/millrace';
const proxyPort = 4800;
const startedMs = 3000;
const flipMs = 50;
/** A packet that was lost is sent again after a second: none may be. */
const slowMs = 3000;

before(sweepDeadTests);

describe('a daemon that cannot start says so in one line and leaves nothing', { concurrency: false }, () => {
  let world: ProxyWorld;
  before(async () => {
    world = await ProxyWorld.createIdle();
  });
  after(() => world.close());

  async function assertRefused(settings: Settings, line: RegExp, as: readonly string[] = []): Promise<void> {
    const file = join(world.folder.path, 'wrong.yaml');
    writeFileSync(file, JSON.stringify({ ...world.settingsOf('a'), ...settings }));
    const [program, ...words] = [...as, command, 'up', '--config', file];
    const result = await world.a.run(program, words, { signal: AbortSignal.timeout(startedMs * 5) });
    const told = result.stderr.split('\n').filter((text) => text.startsWith('millrace: '));
    assert.equal(told.length, 1, result.stderr);
    assert.match(told[0] ?? '', line);
    assert.notEqual(result.code, 0);
    assert.equal(result.stdout, '');
    const left = existsSync(pins) ? readdirSync(pins).filter((name) => name.includes(instanceOf(world.a))) : [];
    assert.deepEqual(left, []);
    await eventually('nothing is attached', () => attachedTo(world.a.cgroup).length === 0, startedMs);
  }

  for (const { name, settings, line } of [
    {
      name: 'a rule with an action that does not exist',
      settings: { rules: ['carry to any'] },
      line: /'carry' is none of pass, connect/,
    },
    { name: 'a cgroup that is not there', settings: { cgroup: '/no/such' }, line: /\/no\/such/ },
    {
      name: 'a rule with a cgroup that is not there',
      settings: { rules: ['connect cgroup /no/such'] },
      line: /\/no\/such/,
    },
    {
      name: 'more rules than fit',
      settings: { rules: Array.from({ length: 65 }, (_, index) => `connect to any:${index + 1}`) },
      line: /64/,
    },
    {
      name: 'an address of another host',
      settings: { listen: { addresses: ['10.99.0.1'] } },
      line: /10\.99\.0\.1.*no such address/,
    },
  ]) {
    test(name, () => assertRefused(settings, line));
  }

  test('a port that is in use', async () => {
    const script = `require('node:net').createServer().listen(${proxyPort}, '${world.a.ipv4}', () => console.log('listening'))`;
    await using other = RunningProgram.start(world.a, process.execPath, ['-e', script]);
    await other.line(/^listening$/);
    await assertRefused({}, /the port is in use/);
  });

  test('somebody who is not root', async () => {
    const nobody = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', '--'];
    await assertRefused({}, /root|permitted|permission/i, nobody);
  });
});

describe('rules decide which connections are carried', { concurrency: false }, () => {
  const program = new BehavioursProgram();
  let world: ProxyWorld;
  let server: RunningProgram;
  let reloads = 0;
  before(async () => {
    world = await ProxyWorld.create();
    server = await program.serve(world.b);
    await world.listening(7303);
  });
  after(() => world?.close());

  /** By a reload of the daemon of host a. */
  async function setRules(rules: readonly string[]): Promise<void> {
    const daemon = world.running('a');
    daemon.configure({ ...world.settingsOf('a'), rules });
    daemon.signal('SIGHUP');
    await daemon.logged(/reloaded: (?:taken over: rules|nothing changed)$/, ++reloads);
  }

  /** How many of the 400 connections, 100 to each of four ports, are carried by these rules. */
  async function carriedOf(rules: readonly string[], family: 'ipv4' | 'ipv6' = 'ipv4'): Promise<number> {
    await setRules(rules);
    const before = world.carried();
    const { client } = await program.observe('threads', world.a, server, world.b[family]);
    assert.equal(client, '400 of 400 right');
    return world.carried() - before;
  }

  for (const { name, rules, carried } of [
    { name: 'a destination', rules: () => [`connect to ${world.b.ipv4}`], carried: 400 },
    { name: 'another destination', rules: () => ['connect to 10.99.0.0/16'], carried: 0 },
    { name: 'ports', rules: () => ['connect to any:7301-7302'], carried: 200 },
    { name: 'the first match, which lets pass', rules: () => ['pass to any:7300', 'connect to any'], carried: 300 },
    { name: 'the first match, which carries', rules: () => ['connect to any:7300', 'pass to any'], carried: 100 },
    { name: 'a source', rules: () => [`connect from ${world.a.ipv4}`], carried: 400 },
    { name: 'another source', rules: () => ['connect from 10.99.0.0/16'], carried: 0 },
    { name: 'a command', rules: () => ['connect command behaviours-dyna'], carried: 400 },
    { name: 'another command', rules: () => ['connect command redis-cli'], carried: 0 },
    { name: 'a cgroup', rules: () => [`connect cgroup ${world.a.cgroup}`], carried: 400 },
    { name: 'another cgroup', rules: () => [`connect cgroup ${world.b.cgroup}`], carried: 0 },
    { name: 'no rule at all', rules: () => [], carried: 0 },
  ]) {
    test(`${name}: ${carried} of 400`, async () => {
      assert.equal(await carriedOf(rules()), carried);
    });
  }

  test('a rule for IPv4 does not touch IPv6', async () => {
    assert.equal(await carriedOf([`connect to ${world.b.ipv4}`], 'ipv6'), 0);
  });

  test('changes under load lose nothing', async (t) => {
    const { a, b } = world;
    const rules = [`connect to ${b.ipv4}`, `connect to ${b.ipv6}`];
    /** All, none, some by family, by port and by command. */
    const sets = [
      rules,
      [],
      rules.slice(1),
      ['pass to any:7302', ...rules],
      ['connect to any command behaviours-dyna', 'pass to any'],
    ];
    let flips = 0;
    const done = new AbortController();
    const flipping = (async () => {
      while (!done.signal.aborted) {
        await setRules(sets[flips++ % sets.length] ?? []);
        await sleep(flipMs);
      }
    })();
    const before = world.carried();
    for (const name of ['threads', 'bulk', 'short', 'half-close', 'sendfile', 'short', 'bulk', 'threads', 'reused']) {
      for (const family of ['ipv4', 'ipv6'] as const) {
        const startMs = performance.now();
        const { client, server: told } = await program.observe(name, a, server, b[family]);
        assert.doesNotMatch(`${client} ${told}`, /WRONG|timed out|nudge/);
        if (name === 'threads') assert.equal(client, '400 of 400 right');
        if (name === 'short') assert.equal(client, '1000 of 1000 right, no error');
        if (name === 'bulk') assert.equal(client, '8388608 bytes came, right, then end');
        const tookMs = performance.now() - startMs;
        assert.ok(tookMs < slowMs, `${name} over ${family} took ${tookMs} ms`);
      }
    }
    done.abort();
    await flipping;
    const carried = world.carried() - before;
    t.diagnostic(`${flips} changes, ${carried} connections carried`);
    assert.ok(flips > 20, `${flips} changes`);
    assert.ok(carried > 100 && carried < 5000, `${carried} carried`);
    assert.deepEqual(
      world.running('a').log.filter(({ level }) => level === 'error'),
      [],
    );
  });

  test('a connection that no rule sent to the daemon is reset and counted', async () => {
    const daemon = world.running('a');
    const before = (await daemon.status()).counters;
    const connect = `const socket = require('node:net').connect(${proxyPort}, '${world.a.ipv4}');
      socket.on('error', ({ code }) => console.log(code)).on('end', () => console.log('end'))`;
    assert.equal((await succeed(world.a, process.execPath, ['-e', connect])).trim(), 'ECONNRESET');
    const { counters } = await daemon.status();
    assert.equal(counters.unsteered, before.unsteered + 1);
    assert.equal(counters.opened, before.opened);
  });

  test('a client that resets before the daemon accepts it reaches the server, as by plain TCP', async () => {
    await setRules([`connect to ${world.b.ipv4}`]);
    const daemon = world.running('a');
    const before = (await daemon.status()).counters;
    const connect = `console.log('ready'); process.stdin.once('data', () => {
      const socket = require('node:net').connect(7300, '${world.b.ipv4}', () => socket.resetAndDestroy());
      socket.on('close', () => process.exit()) })`;
    // The hooks take a stopped daemon for alive for half a second more, which may not be enough.
    for (const carried = world.carried(); world.carried() === carried; ) {
      await using client = RunningProgram.start(world.a, process.execPath, ['-e', connect], { isWritable: true });
      await client.line(/^ready$/);
      daemon.signal('SIGSTOP');
      client.write('go');
      await client.exit();
      daemon.signal('SIGCONT');
    }
    await eventually('it is carried', async () => (await daemon.status()).counters.opened === before.opened + 1);
    assert.equal((await daemon.status()).counters.accepted, before.accepted + 1);
  });
});
