// A worker that runs one of our loops and posts its ns per iteration. workbench/bench/c/loop.c has
// the same loops in C.

import { parentPort } from 'node:worker_threads';
import {
  AGAIN,
  EventFd,
  ip,
  measureCrossing,
  monotonicNs,
  Poller,
  pinThread,
  pollEvents,
  SharedMemory,
  Socket,
  threadAffinity,
} from '../../src/native/index.ts';
import type { LoopJob } from './native.ts';

function perIteration(iterations: number, loop: () => void): number {
  const startNs = monotonicNs();
  loop();
  return (monotonicNs() - startNs) / iterations;
}

function epoll({ size, iterations }: LoopJob): number {
  using stack = new DisposableStack();
  const poller = stack.use(Poller.create(64));
  for (let i = 0; i < size; i++) {
    const event = stack.use(EventFd.create());
    event.signal();
    poller.add(event.fd, pollEvents.in, i);
  }
  let sum = 0;
  const ns = perIteration(iterations, () => {
    for (let i = 0; i < iterations; i++) {
      const count = poller.wait(0);
      for (let index = 0; index < count; index++) sum += poller.token(index) + poller.events(index);
    }
  });
  if (sum !== iterations * ((size * (size - 1)) / 2 + size)) throw new Error(`epoll lost events: ${sum}`);
  return ns;
}

function pump({ size, iterations }: LoopJob): number {
  using stack = new DisposableStack();
  const memory = stack.use(SharedMemory.create({ sizeBytes: 2 * size, populate: true }));
  const listener = stack.use(Socket.stream('ipv4'));
  listener.bind(ip('127.0.0.1', 0));
  listener.listen();
  const client = stack.use(Socket.stream('ipv4'));
  client.connect(listener.localAddress);
  const server = stack.use(accept(listener));
  for (const socket of [client, server]) {
    socket.setOption('noDelay', 1);
    socket.setOption('sendBuffer', 1 << 20);
    socket.setOption('receiveBuffer', 1 << 20);
  }
  return perIteration(iterations, () => {
    for (let i = 0; i < iterations; i++) {
      let sent = 0;
      let got = 0;
      while (got < size) {
        if (sent < size) {
          const n = client.send(memory, sent, size - sent);
          if (n !== AGAIN) sent += n;
        }
        const n = server.receive(memory, size + got, size - got);
        if (n !== AGAIN) got += n;
      }
    }
  });
}

function accept(listener: Socket): Socket {
  using poller = Poller.create(1);
  poller.add(listener.fd, pollEvents.in, 0);
  poller.wait(1e9);
  const socket = listener.accept();
  if (socket === undefined) throw new Error('loopback connection did not arrive within 1 s');
  return socket;
}

function runJob(job: LoopJob): number {
  switch (job.kind) {
    case 'crossing':
    case 'arguments':
      return measureCrossing(job.kind, job.iterations);
    case 'epoll':
      return epoll(job);
    case 'pump':
      return pump(job);
  }
}

// The same processor as loop.c takes: the last one, away from the interrupts of the first.
pinThread(threadAffinity().at(-1) ?? 0);
parentPort?.on('message', (job: LoopJob) => parentPort?.postMessage(runJob(job)));
