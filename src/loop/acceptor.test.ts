import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Address, Socket } from '../native/index.ts';
import type { AcceptorFacts } from './fixtures/acceptor-process.ts';

const program = new URL('./fixtures/acceptor-process.ts', import.meta.url).pathname;
const descriptors = 64;
const count = 60;

test('out of descriptors, it says so once, does not spin, and goes on when there are some again', async () => {
  const shell = ['-c', 'ulimit -n "$1"; shift; exec "$@"', 'sh', String(descriptors)];
  const child = spawn('sh', [...shell, process.execPath, program], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  const [address] = (await once(child, 'message')) as [Address];
  const facts = async (): Promise<AcceptorFacts> => {
    child.send('?');
    const [answer] = (await once(child, 'message')) as [AcceptorFacts];
    return answer;
  };
  using stack = new DisposableStack();
  const clients = Array.from({ length: count }, () => {
    const client = stack.use(Socket.stream('ipv4'));
    client.connect(address);
    return client;
  });
  let before = await facts();
  while (before.pauses.length === 0) before = await facts();
  assert.ok(before.accepted < count);
  await sleep(500);
  const after = await facts();
  assert.equal(after.accepted, before.accepted);
  assert.ok(after.cpuMs - before.cpuMs < 100, `${after.cpuMs - before.cpuMs} ms of processor time in 500 ms`);
  // Each connection that ends makes room for another one.
  for (const client of clients) client.close();
  let last = after;
  while (last.accepted < count) last = await facts();
  assert.deepEqual(last.pauses, ['EMFILE']);
  const exited = once(child, 'exit');
  child.disconnect();
  await exited;
});
