// Tests of the shortcut's limits: what a stopped receiver costs, and what is left of an instance.
// Runs alone: it measures memory and time, and counts the maps of the whole machine.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { parseRules, Steering } from '../../../src/steering/index.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { attachedTo, bpfNames } from '../native/kernel-objects.ts';
import { ShortcutWorld } from './shortcut/shortcut-world.ts';

const skip = process.getuid?.() !== 0 ? 'needs root' : false;
/** Much more than may be held. */
const OFFERED_BYTES = 400_000_000;
/** How long the sender is watched after it has come to rest, and what it may do meanwhile. */
const REST_MS = 1500;
const MOST_CPU_MS = 50;
const MOST_WAKES = 5;
const MOST_HELD_KIB = 32 * 1024;

interface Stalled {
  readonly sentAtRest: number;
  readonly rested: boolean;
  readonly heldKib: number;
  readonly cpuMs: number;
  readonly wakes: number;
  readonly received: number;
  /** Between two reads, once the receiver goes on. */
  readonly longestGapMs: number;
}

/** Of all instances on this machine. */
function sockhashes(): readonly string[] {
  return bpfNames('shortcut_socke');
}

describe('the shortcut', { skip }, () => {
  let world: ShortcutWorld;
  before(async () => {
    world = await ShortcutWorld.create();
  });
  after(async () => {
    await eventually('all entries are gone', () => Object.values(world.entries()).every((count) => count === 0));
    await world[Symbol.asyncDispose]();
  });

  // At once: what is held for all of them is less than what may be held for one.
  describe('with a stopped receiver', { concurrency: true }, () => {
    for (const sender of ['blocking', 'level', 'edge']) {
      test(`a stopped receiver stops a ${sender} sender of 400 MB, which rests until it goes on`, async () => {
        const { said, redirected } = await world.take<Stalled>('stall', sender, OFFERED_BYTES, 65_536, REST_MS);
        assert.ok(redirected > 0);
        assert.ok(said.rested && said.cpuMs < MOST_CPU_MS && said.wakes < MOST_WAKES, JSON.stringify(said));
        assert.ok(said.heldKib < MOST_HELD_KIB && said.sentAtRest < MOST_HELD_KIB * 1024, JSON.stringify(said));
        assert.equal(said.received, OFFERED_BYTES);
        assert.ok(said.longestGapMs < 1000, JSON.stringify(said));
      });
    }
  });

  test('is not taken to a socket whose program chose its receive buffer: that is for TCP to keep', async () => {
    world.flow.env = { FLOW_RECEIVE_BUFFER: '65536' };
    const { said, redirected } = await world.take<Stalled>('stall', 'level', 40_000_000, 16_384, 1000);
    world.flow.env = {};
    assert.equal(redirected, 0);
    assert.ok(said.rested && said.longestGapMs < 1000, JSON.stringify(said));
    assert.equal(said.received, 40_000_000);
  });

  test('leaves room for TCP where receive buffers are small', async () => {
    const limit = 'net.ipv4.tcp_rmem';
    const { stdout } = await world.short.run('sysctl', ['-n', limit]);
    await world.short.run('sysctl', ['-w', `${limit}=4096 131072 500000`]);
    const { said, redirected } = await world.take<Stalled>('stall', 'level', 40_000_000, 16_384, 1000);
    await world.short.run('sysctl', ['-w', `${limit}=${stdout.trim()}`]);
    assert.ok(redirected > 0);
    assert.ok(said.rested && said.sentAtRest < 1_000_000 && said.longestGapMs < 1000, JSON.stringify(said));
    assert.equal(said.received, 40_000_000);
  });

  test('200,000 messages of one byte to a stopped receiver cost no more than the credit in messages', async () => {
    const { said, redirected, byTcp } = await world.take<Stalled>('stall', 'blocking', 200_000, 1, 500);
    assert.equal(redirected, 1024);
    assert.equal(redirected + byTcp, 200_000);
    assert.ok(said.heldKib < MOST_HELD_KIB, JSON.stringify(said));
    assert.equal(said.received, 200_000);
  });

  test('an instance that is closed loses nothing of open connections, and is gone when they are', async () => {
    const instance = `${world.steering.instance}-brief`;
    const brief = Steering.create({ instance, cgroup: world.plain.cgroup, rules: parseRules('shortcut') });
    const stream = world.flow.run<{ bytes: number }>(
      world.plain,
      '127.0.0.1',
      'stream',
      60_000_000,
      77,
      'edge',
      'pauses',
    );
    await eventually('the stream takes the shortcut', () => (brief.shortcutCounters()?.redirected ?? 0) > 100);
    const earlier = sockhashes();
    brief.close();
    assert.equal((await stream).bytes, 60_000_000);
    assert.deepEqual(attachedTo(world.plain.cgroup), []);
    await eventually('its maps are gone', () => sockhashes().length === earlier.length - 1);
  });
});
