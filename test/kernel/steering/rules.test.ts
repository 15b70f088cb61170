// Tests of rules from outside: wrong ones leave nothing behind, first match decides, and changes under load lose nothing.
// Runs beside other files: it mostly waits.

import assert from 'node:assert/strict';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { ProgramResult } from '../../../src/lab/index.ts';
import { sweepDeadTests } from '../fixtures/lab-world.ts';
import { attachedTo } from './attached.ts';
import { BehavioursProgram } from './behaviours-program.ts';
import { RunningProgram } from './running-program.ts';
import { SteeredWorld } from './steered-world.ts';
import { temporaryFolder } from './temporary-folder.ts';
import { until, World } from './world.ts';

const command = join(import.meta.dirname, '../../../millrace');
const ruled = join(import.meta.dirname, 'rules/ruled-daemon.ts');
const pins = '/sys/fs/bpf/millrace';
const startedMs = 3000;
/** A packet that was lost is sent again after a second: none may be. */
const slowMs = 3000;

before(sweepDeadTests);

describe('a relay that cannot start says so in one line and leaves nothing', { concurrency: false }, () => {
  let world: World;
  before(async () => {
    world = await World.create();
  });
  after(() => world.close());

  const instance = (): string => `test-${world.a.labId}-wrong`;
  const relay = (args: readonly string[], before: readonly string[] = []): Promise<ProgramResult> => {
    const [program = '', ...rest] = [...before, command, 'relay', '--instance', instance(), ...args];
    return world.a.run(program, rest, { signal: AbortSignal.timeout(startedMs * 5) });
  };

  async function assertRefused(result: ProgramResult, line: RegExp): Promise<void> {
    // Where a word of the command line is wrong, a hint follows.
    const said = result.stderr.replace('(add --help for the options)', '').trimEnd();
    assert.match(said, line);
    assert.equal(said.split('\n').length, 1, said);
    assert.notEqual(result.code, 0);
    assert.equal(result.stdout, '');
    const left = existsSync(pins) ? readdirSync(pins).filter((name) => name.includes(instance())) : [];
    assert.deepEqual(left, []);
    await until('nothing is attached', () => attachedTo(world.a.cgroup).length === 0, startedMs);
  }

  const rule = ['--rule', 'connect to any'];
  for (const { name, args, line } of [
    { name: 'no rule', args: [], line: /nothing to carry/ },
    {
      name: 'an action that does not exist',
      args: ['--rule', 'carry to any'],
      line: /'carry' is none of pass, connect/,
    },
    { name: 'a network that is none', args: ['--rule', 'connect to 10.0.0.0/99'], line: /10\.0\.0\.0\/99/ },
    {
      name: 'ports in the wrong order',
      args: ['--rule', 'connect to any:9-8'],
      line: /'9-8' is no port or range of ports/,
    },
    { name: 'a word too many', args: ['--rule', 'connect to any via b'], line: /'via' is none of to, from/ },
    {
      name: 'a command that is too long',
      args: ['--rule', 'connect command much-too-long-for-it'],
      line: /at most 15 bytes/,
    },
    { name: 'a cgroup that is not there', args: [...rule, '--cgroup', '/no/such'], line: /\/no\/such/ },
    { name: 'a rule with a cgroup that is not there', args: ['--rule', 'connect cgroup /no/such'], line: /\/no\/such/ },
    { name: 'a file that is not there', args: ['--rules', '/no/such'], line: /read rules from \/no\/such: ENOENT/ },
    {
      name: 'an address of another host',
      args: [...rule, '--listen', '10.99.0.1'],
      line: /10\.99\.0\.1.*no such address/,
    },
    {
      name: 'a peer without an address',
      args: [...rule, '--peer', 'b'],
      line: /expected a name, an address and a port/,
    },
  ]) {
    test(name, async () => {
      await assertRefused(await relay(['--cgroup', world.a.cgroup, ...args]), line);
    });
  }

  test('more rules than fit', async () => {
    using folder = temporaryFolder('rules');
    const file = join(folder.path, 'many');
    writeFileSync(file, Array.from({ length: 65 }, (_, index) => `connect to any:${index + 1}\n`).join(''));
    await assertRefused(await relay(['--cgroup', world.a.cgroup, '--rules', file]), /64/);
  });

  test('a port that is in use', async () => {
    const script = `require('node:net').createServer().listen(4789, '${world.a.ipv4}', () => console.log('listening'))`;
    await using other = RunningProgram.start(world.a, process.execPath, ['-e', script]);
    await other.line(/^listening$/);
    await assertRefused(await relay(['--cgroup', world.a.cgroup, ...rule]), /the port is in use/);
  });

  test('somebody who is not root', async () => {
    const nobody = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', '--'];
    await assertRefused(await relay(['--cgroup', world.a.cgroup, ...rule], nobody), /root|permitted|permission/i);
  });
});

describe('rules decide which connections are carried', { concurrency: false }, () => {
  const program = new BehavioursProgram();
  let world: SteeredWorld;
  let server: RunningProgram;
  let daemon: RunningProgram;
  before(async () => {
    world = await SteeredWorld.create();
    await world.relays.a.stop();
    const { a, b } = world;
    const words = [ruled, a.name, world.relays.a.instance, a.cgroup, `${b.name}=${b.ipv4}`];
    daemon = RunningProgram.start(a, process.execPath, words, { isWritable: true });
    await daemon.line(/^ready$/);
    server = await program.serve(b);
    await world.listening(7303);
  });
  after(async () => {
    await daemon.close();
    await world.close();
    program[Symbol.dispose]();
  });

  async function setRules(rules: readonly string[]): Promise<void> {
    daemon.write(JSON.stringify(rules));
    await daemon.line(/^set$/);
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
    await setRules([`connect to ${b.ipv4}`, `connect to ${b.ipv6}`]);
    daemon.write('flip');
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
    const carried = world.carried() - before;
    daemon.signal('SIGTERM');
    const flips = Number.parseInt(await daemon.line(/flips$/), 10);
    await daemon.exit();
    t.diagnostic(`${flips} changes, ${carried} connections carried`);
    assert.ok(flips > 20, `${flips} changes`);
    assert.ok(carried > 100 && carried < 5000, `${carried} carried`);
    assert.equal(daemon.stderr, '');
  });
});
