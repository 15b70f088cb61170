// A process at one end of the verbs rows: `server` is an ordinary perf server, `client` runs a loop
// for each message.

import { copyMemory, monotonicNs, pinThread, SharedMemory } from '../../src/native/index.ts';
import {
  connectSetup,
  dial,
  measureBandwidth,
  openPerfDevice,
  Pace,
  type PerfSetup,
  RoundTrips,
  requestRows,
  runServer,
  summarizeSamples,
} from '../../src/perf/index.ts';
import { SendBatch } from '../../src/providers/index.ts';
import type { VerbsLoop } from './verbs.ts';

/** Bulk writes in a batch. All have the same source and target, as the copies of the rival. */
const bulkBatch = 8;
const postBatch = 64;

type Loop = (iterations: number) => Promise<number>;

function postAndWait({ qps, cq, completions }: PerfSetup, batch: SendBatch): void {
  qps[0].postSend(batch);
  let count = 0;
  while (count === 0) count = cq.poll(completions);
  qps[0].throwIfFailed(completions, 0);
}

/** MiB/s of writes of one size, in batches whose last write is signalled. */
function bulk(setup: PerfSetup): Loop {
  const batch = requestRows(setup, 0, bulkBatch);
  return async (iterations) => {
    const batches = Math.ceil(iterations / bulkBatch);
    const startNs = monotonicNs();
    for (let index = 0; index < batches; index++) postAndWait(setup, batch);
    return mibPerS(setup, batches * bulkBatch, monotonicNs() - startNs);
  };
}

/** MiB/s of writes of one size, with the queue kept full. */
function stream(setup: PerfSetup): Loop {
  const pace = new Pace(() => {});
  return async (iterations) => {
    const parameters = { ...setup.parameters, iterations };
    return (await measureBandwidth({ ...setup, parameters }, pace)).averageBytesPerS / 1024 ** 2;
  };
}

/** MiB/s of copies between two mapped memories, the best that the wire could do. */
function memcpy(setup: PerfSetup): Loop {
  const { source, parameters } = setup;
  const target = SharedMemory.create({ sizeBytes: parameters.sizeBytes, populate: true });
  return async (iterations) => {
    const startNs = monotonicNs();
    for (let index = 0; index < iterations; index++) copyMemory(target, 0, source.memory, 0, parameters.sizeBytes);
    return mibPerS(setup, iterations, monotonicNs() - startNs);
  };
}

function mibPerS({ parameters }: PerfSetup, count: number, ns: number): number {
  return (count * parameters.sizeBytes * 1e9) / ns / 1024 ** 2;
}

/** ns per small write: prepared, posted and polled for, in batches. */
function post(setup: PerfSetup): Loop {
  const { source, parameters, peers } = setup;
  const { address, rkey } = peers[0].regions.target;
  const batch = new SendBatch({ capacity: postBatch, maxSge: 1 });
  return async (iterations) => {
    const batches = Math.ceil(iterations / postBatch);
    const startNs = monotonicNs();
    for (let index = 0; index < batches; index++) {
      batch.clear();
      for (let row = 1; row < postBatch; row++) {
        batch.write(row, address, rkey, 0).sge(source.lkey, source.address, parameters.sizeBytes);
      }
      batch.write(postBatch, address, rkey).sge(source.lkey, source.address, parameters.sizeBytes);
      postAndWait(setup, batch);
    }
    return (monotonicNs() - startNs) / (batches * postBatch);
  };
}

/** The median of half round trips in us: perftest's t_typical. */
function ask(setup: PerfSetup): Loop {
  const pace = new Pace(() => {});
  let asked = 0;
  const trips = new RoundTrips(setup, pace, 1 << 20);
  return async (iterations) => {
    asked += iterations;
    while (!trips.ask(asked, Number.MAX_VALUE, true)) await pace.pause();
    return summarizeSamples(trips.takeFigures().samplesNs).typical / 1000;
  };
}

async function runClient(loop: VerbsLoop, port: number): Promise<void> {
  const { signal } = new AbortController();
  const conversation = await dial(loop.dial ?? '127.0.0.1', port, loop.test, signal);
  const opened = openPerfDevice(loop.device, conversation);
  const { test, sizeBytes } = loop;
  const { transport } = opened.info;
  const parameters = { test, sizeBytes, transport, iterations: 1, durationS: 0, queuePairs: 1, txDepth: 128 };
  conversation.tell({ v: 1, ...parameters });
  // The server's answer: accepted.
  await conversation.hear();
  const setup = await connectSetup(opened, parameters, conversation);
  const loops: Record<string, Loop> =
    loop.kind === 'bulk'
      ? { ours: bulk(setup), memcpy: memcpy(setup) }
      : { ours: { post, ask, stream }[loop.kind](setup) };
  process.on('message', ({ name, iterations }: { name: string; iterations: number }) => {
    void loops[name](iterations).then((figure) => process.send?.({ figure }));
  });
  process.on('disconnect', () => {
    setup[Symbol.dispose]();
    conversation[Symbol.dispose]();
  });
  process.send?.({ figure: 0 });
}

const [role, cpu, port, loopText = '{}'] = process.argv.slice(2);
const loop = JSON.parse(loopText) as VerbsLoop;
pinThread(Number(cpu));
if (role === 'client') {
  await runClient(loop, Number(port));
} else {
  const stop = new AbortController();
  process.on('disconnect', () => stop.abort());
  const say = (line: string): void => {
    const listening = /on port (\d+)/.exec(line)?.[1];
    if (listening !== undefined) process.send?.({ figure: Number(listening) });
  };
  // When the row is over, the client just closes its connection.
  await runServer({ test: loop.test, port: 0, device: loop.device, signal: stop.signal, say }).catch(() => {});
}
