import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Address, Socket } from '../native/index.ts';
import type { AcceptorFacts } from './fixtures/acceptor-process.ts';

const program = new URL('./fixtures/acceptor-process.ts', import.meta.url).pathname;
const descriptors = 64;
const count = 60;

/** An acceptor in a process that has fewer descriptors than clients come. */
class AcceptorProcess implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly address: Exclude<Address, { family: 'unix' }>;

  static async start(maxWaitNs: number): Promise<AcceptorProcess> {
    const words = ['-c', 'ulimit -n "$1"; shift; exec "$@"', 'sh', String(descriptors), process.execPath, program];
    const child = spawn('sh', [...words, String(maxWaitNs)], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    const [address] = (await once(child, 'message')) as [AcceptorProcess['address']];
    return new AcceptorProcess(child, address);
  }

  private constructor(child: ChildProcess, address: AcceptorProcess['address']) {
    this.#child = child;
    this.address = address;
  }

  async facts(): Promise<AcceptorFacts> {
    this.#child.send('?');
    const [answer] = (await once(this.#child, 'message')) as [AcceptorFacts];
    return answer;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const exited = once(this.#child, 'exit');
    this.#child.disconnect();
    await exited;
  }
}

test('out of descriptors, it says so once, does not spin, and goes on when there are some again', async () => {
  await using acceptor = await AcceptorProcess.start(3600e9);
  using stack = new DisposableStack();
  const clients = Array.from({ length: count }, () => {
    const client = stack.use(Socket.stream('ipv4'));
    client.connect(acceptor.address);
    return client;
  });
  let before = await acceptor.facts();
  while (before.pauses.length === 0) before = await acceptor.facts();
  assert.ok(before.accepted < count);
  await sleep(500);
  const after = await acceptor.facts();
  assert.equal(after.accepted, before.accepted);
  assert.ok(after.cpuMs - before.cpuMs < 100, `${after.cpuMs - before.cpuMs} ms of processor time in 500 ms`);
  // Each connection that ends makes room for another one.
  for (const client of clients) client.close();
  let last = after;
  while (last.accepted < count) last = await acceptor.facts();
  assert.deepEqual([last.pauses, last.turnedAway], [['EMFILE'], 0]);
});

test('who waits too long for a descriptor is reset, and those who come when there are some again are accepted', async () => {
  await using acceptor = await AcceptorProcess.start(0);
  const { host, port } = acceptor.address;
  let resets = 0;
  const clients = Array.from({ length: count }, () => {
    const client = connect({ host, port });
    client.on('error', ({ code }: NodeJS.ErrnoException) => {
      if (code === 'ECONNRESET') resets++;
    });
    return client;
  });
  let facts = await acceptor.facts();
  while (facts.accepted + facts.turnedAway < count || resets < facts.turnedAway) facts = await acceptor.facts();
  assert.ok(facts.accepted > 0 && facts.turnedAway > 0, JSON.stringify(facts));
  assert.equal(resets, facts.turnedAway);
  for (const client of clients) client.destroy();
  const again = connect({ host, port });
  await once(again, 'connect');
  const { accepted } = facts;
  while (facts.accepted === accepted) facts = await acceptor.facts();
  again.destroy();
});
