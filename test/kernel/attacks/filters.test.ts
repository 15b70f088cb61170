// Packet filters: what they stop by plain TCP they stop carried, too, and a change of theirs is
// followed.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Host } from '../../../src/lab/index.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { succeed } from '../../../workbench/worlds/succeed.ts';
import { compileBpf } from '../steering/compile.ts';
import { AttacksProgram } from './attacks-program.ts';

const port = 7001;
const otherPort = 7002;
/** What the issue asks for, and a busy machine’s delay. */
const followMs = 5000 + 1000;

before(sweepDeadTests);
const program = new AttacksProgram();
after(() => program[Symbol.dispose]());

describe('packet filters and carried connections', { concurrency: false }, () => {
  let world: ProxyWorld;
  before(async () => {
    world = await ProxyWorld.create();
    for (const server of [port, otherPort]) {
      await program.serve(world.b, server);
      await world.listening(server);
    }
  });
  after(() => world?.close());

  /** `carried`, `plain`, or why it failed. The far end saw the right client in any case. */
  async function connect(to: number, from: readonly string[] = []): Promise<string> {
    const before = world.carried();
    // Plain TCP may wait for long.
    const words = ['1', program.file, 'check', world.b.ipv4, String(to), '1', ...from];
    const { stdout } = await world.a.run('timeout', words);
    const found = /^right (\d+) wrong (\d+) failed \d+ (\S+)$/m.exec(stdout);
    if (found === null) return 'timeout';
    const [, right, wrong, error = ''] = found;
    assert.equal(wrong, '0');
    if (right === '0') return error;
    return world.carried() > before ? 'carried' : 'plain';
  }

  async function becomes(wanted: string, to: number, from: readonly string[] = []): Promise<void> {
    const startMs = performance.now();
    await eventually(`port ${to} is ${wanted}`, async () => (await connect(to, from)) === wanted);
    assert.ok(performance.now() - startMs < followMs, 'a filter is followed within 5 s');
  }

  /** A filter in one hook of a host, until it is removed. */
  async function filter(host: Host, hook: string, rule: string): Promise<AsyncDisposable> {
    const chain = `{ type filter hook ${hook} priority 0 ; }`;
    const lines = ['add table inet t', `add chain inet t c ${chain}`, `add rule inet t c ${rule}`];
    await succeed(host, 'nft', ['-f', '-'], `${lines.join('\n')}\n`);
    return {
      [Symbol.asyncDispose]: async () => {
        await succeed(host, 'nft', ['delete', 'table', 'inet', 't']);
      },
    };
  }

  test('a server behind no filter is carried from the first connect on, and stays so', async () => {
    for (const to of [port, otherPort]) assert.equal(await connect(to), 'carried');
    // Longer than an admission counts without being asked for again.
    await sleep(4500);
    for (const to of [port, otherPort]) assert.equal(await connect(to), 'carried');
  });

  test('a knock leaves no half of a handshake at the server', async () => {
    let found = 0;
    const looks = 20;
    for (let look = 0; look < looks; look++) {
      // Each is asked about every 1.3 s while it is used, and the server would wait for a second.
      assert.equal(await connect(port), 'carried');
      const halves = await succeed(world.b, 'ss', ['-Htan', 'state', 'syn-recv']);
      if (halves !== '') found++;
    }
    assert.ok(found < looks / 2, `${found} of ${looks}`);
  });

  test('a filter by port at the server’s host closes and opens one port, and no other', async () => {
    {
      await using _ = await filter(world.b, 'input', `tcp dport ${port} reject with tcp reset`);
      await becomes('ECONNREFUSED', port);
      assert.equal(await connect(otherPort), 'carried');
    }
    await becomes('carried', port);
  });

  test('a filter by source closes one address of a host, and no other', async () => {
    const second = '10.77.0.111';
    await succeed(world.a, 'ip', ['addr', 'add', `${second}/24`, 'dev', 'eth0']);
    await becomes('carried', port, [second]);
    {
      await using _ = await filter(world.b, 'input', `ip saddr ${second} tcp dport ${port} reject with tcp reset`);
      await becomes('ECONNREFUSED', port, [second]);
      assert.equal(await connect(port), 'carried');
    }
    await becomes('carried', port, [second]);
    await succeed(world.a, 'ip', ['addr', 'del', `${second}/24`, 'dev', 'eth0']);
  });

  test('an unbound client has the address that plain TCP would give it', async () => {
    const second = '10.77.0.111';
    await succeed(world.a, 'ip', ['addr', 'add', `${second}/24`, 'dev', 'eth0']);
    await succeed(world.a, 'ip', ['route', 'add', `${world.b.ipv4}/32`, 'dev', 'eth0', 'src', second]);
    await eventually('it is carried under that address', async () => {
      const before = world.carried();
      const seen = await succeed(world.a, 'bash', ['-c', `cat < /dev/tcp/${world.b.ipv4}/${port}`]);
      return world.carried() > before && seen.startsWith(`${second} `);
    });
    await succeed(world.a, 'ip', ['route', 'del', `${world.b.ipv4}/32`]);
    await succeed(world.a, 'ip', ['addr', 'del', `${second}/24`, 'dev', 'eth0']);
    await eventually('it has its first address again', async () => {
      const seen = await succeed(world.a, 'bash', ['-c', `cat < /dev/tcp/${world.b.ipv4}/${port}`]);
      return seen.startsWith(`${world.a.ipv4} `);
    });
    await becomes('carried', port);
  });

  test('a filter of outgoing packets, and one of answers, at the client’s host', async () => {
    for (const [hook, rule] of [
      ['output', `tcp dport ${port} drop`],
      ['input', `tcp sport ${port} drop`],
    ] as const) {
      {
        await using _ = await filter(world.a, hook, rule);
        await becomes('timeout', port);
      }
      await becomes('carried', port);
    }
  });

  test('XDP at the server’s device', async () => {
    const object = compileBpf(join(import.meta.dirname, 'drop-port.bpf.c'));
    await succeed(world.b, 'ip', ['link', 'set', 'dev', 'eth0', 'xdpgeneric', 'obj', object, 'sec', 'xdp']);
    await becomes('timeout', port);
    assert.equal(await connect(otherPort), 'carried');
    await succeed(world.b, 'ip', ['link', 'set', 'dev', 'eth0', 'xdpgeneric', 'off']);
    await becomes('carried', port);
  });
});
