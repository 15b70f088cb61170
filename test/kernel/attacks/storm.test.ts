// An unprivileged user does what it can to the sockets of both hosts, in the hosts' own network
// namespaces and in others with the same addresses, while connections of another user are checked:
// each must reach the server it meant, under its own address.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Host } from '../../../src/lab/index.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { AttacksProgram, nobody } from './attacks-program.ts';

/** The whole suite has little time; `MILLRACE_ATTACK_SECONDS=60` is for those who have more. */
const seconds = Number(process.env.MILLRACE_ATTACK_SECONDS ?? 15);
const ports = [7001, 7002];
const lanePort = 4800;
const round = 50;
/** What plain TCP says, too, where an attacker has the port or the last of a host's ports. */
const honest = ['EADDRNOTAVAIL', 'EADDRINUSE', '-'];

before(sweepDeadTests);
const program = new AttacksProgram();
after(() => program[Symbol.dispose]());

test('no storm of binds, listens, connects and namespaces moves a connection or changes its address', async () => {
  await using world = await ProxyWorld.create({ settings: { lanes: 2 } });
  const { a, b } = world;
  await using undo = new AsyncDisposableStack();
  for (const port of ports) {
    for (const host of [a, b]) undo.use(await program.serve(host, port));
    await world.listening(port);
  }
  const own = (from: Host, to: Host, seed: number): readonly (string | number)[] => {
    return ['storm', from.ipv4, to.ipv4, ports[0] ?? 0, lanePort, seconds, seed];
  };
  const elsewhere = (host: Host): readonly string[] => {
    const enter = `ip link set lo up && ip addr add ${host.ipv4}/32 dev lo && ip route add default dev lo && exec "$0" "$@"`;
    return [...nobody, 'unshare', '-Urn', 'sh', '-c', enter];
  };
  const storms = [
    program.start(a, own(a, b, 1), nobody),
    program.start(a, own(a, b, 2), elsewhere(a)),
    program.start(b, own(b, a, 3), nobody),
    program.start(b, own(b, b, 4), nobody),
  ].map((storm) => undo.use(storm));
  await Promise.all(storms.map((storm) => storm.line(/^storming$/)));
  let isOver = false;
  const ends = Promise.all(storms.map((storm) => storm.line(/^done( \d+){8}$/, 2 * seconds * 1000 + 30_000)));
  const over = ends.finally(() => {
    isOver = true;
  });
  const victim = async (from: Host, to: Host, port: number, family: 'ipv4' | 'ipv6'): Promise<number> => {
    let right = 0;
    while (!isOver) {
      const checked = await program.check(from, [to[family], port, round]);
      assert.equal(checked.wrong, 0, `${from.name} to ${to.name}: ${JSON.stringify(checked)}`);
      assert.ok(honest.includes(checked.error), JSON.stringify(checked));
      right += checked.right;
    }
    return right;
  };
  const before = world.carried();
  const rights = await Promise.all([
    victim(a, b, 7001, 'ipv4'),
    victim(a, b, 7002, 'ipv6'),
    victim(b, a, 7002, 'ipv4'),
    victim(b, b, 7001, 'ipv4'),
  ]);
  const counts = (await over).map((line) => line.split(' ').slice(1).map(Number));
  for (const done of counts)
    assert.ok(
      done.every((times) => times > 0),
      String(counts),
    );
  for (const right of rights) assert.ok(right >= round, String(rights));
  assert.ok(world.carried() - before > round, 'a storm that nothing was carried in');
  for (const name of ['a', 'b'] as const) {
    const daemon = world.running(name);
    assert.equal(daemon.hasExited, false);
    assert.deepEqual(
      daemon.log.filter(({ level }) => level === 'fatal'),
      [],
    );
    assert.equal((await daemon.peer()).state, 'up');
  }
});
