// More connects and listens than the kernel has room for to tell of: the daemon counts what it was
// not told, and finds what listens by itself.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { succeed } from '../../../workbench/worlds/succeed.ts';
import { AttacksProgram } from '../attacks/attacks-program.ts';

const port = 7001;
/** Each is two events of some 200 bytes, for which there is 1 MiB. */
const listens = 5000;
const storm = `import socket
for _ in range(${listens}):
  with socket.create_server(("127.0.0.1", 0)): pass`;

const address = '10.92.7.7';
const addAddress = `ip link set lo up && ip addr add ${address}/32 dev lo && exec "$0" "$@"`;

before(sweepDeadTests);
const program = new AttacksProgram();
after(() => program[Symbol.dispose]());

test('a daemon that was not told of listeners says so, and finds them, also in a namespace that it did not know', async () => {
  await using world = await ProxyWorld.create();
  const [a, b] = [world.running('a'), world.running('b')];
  // So long as it stands still, nobody takes events.
  b.signal('SIGSTOP');
  await succeed(world.b, 'python3', ['-c', storm]);
  // There is no room any more to tell of these.
  await program.serve(world.b, port);
  await using elsewhere = program.start(world.b, ['serve', port], ['unshare', '-n', 'sh', '-c', addAddress]);
  await elsewhere.line(/^listening$/);
  b.signal('SIGCONT');
  await eventually('events were lost', async () => (await b.status()).lostEvents > 0);
  await b.logged(/^programs connect or listen faster than the daemon hears of it/);
  await world.ready();
  for (const host of [world.b.ipv4, address]) {
    await eventually(`${host} is announced`, () => a.isAnnounced(`${host}:${port}`));
  }
  assert.equal(b.log.filter(({ msg }) => msg.startsWith('programs connect or listen faster')).length, 1);
});
