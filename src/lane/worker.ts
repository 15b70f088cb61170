// The thread of a lane: hears the main thread, runs the loop, and ends with everything closed.

import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { EventLoop } from '../loop/index.ts';
import { EventFd, Fd, nameThread, pollEvents, TimerFd } from '../native/index.ts';
import { Carrier } from './carrier.ts';
import { LaneLoop } from './lane-loop.ts';
import type { FromLane, LaneSettings, ToLane } from './messages.ts';
import { Patience } from './patience.ts';

/** How often the clock is looked at. */
const BEAT_NS = 250_000_000;

if (parentPort === null) throw new Error('a lane is a worker thread');
const port = parentPort;
const settings = workerData as LaneSettings;
const tell = (message: FromLane): void => port.postMessage(message);

try {
  start();
} catch (error) {
  tell({ kind: 'failed', reason: error instanceof Error ? error.message : String(error) });
  port.close();
}

function start(): void {
  nameThread(`lane-${settings.index}`);
  using undo = new DisposableStack();
  const lane = undo.use(new EventLoop());
  let isRunning = true;
  let awaiting = 0;
  const wait = (work: Promise<void>): void => {
    awaiting++;
    void work.finally(() => awaiting--);
  };
  const carrier = undo.use(new Carrier(lane, settings, { tell, wait }));
  // Of the main thread's descriptor, which is its own.
  const wake = undo.use(EventFd.adopt(new Fd(settings.wakeFd).duplicate().release()));
  const timer = undo.use(TimerFd.create());
  const loop = new LaneLoop({
    lane,
    sessions: () => carrier.sessions,
    patience: new Patience(settings.channel.spinUs),
    isRunning: () => isRunning,
    isAwaiting: () => awaiting > 0,
  });
  const answer = ({ id, what }: Extract<ToLane, { kind: 'ask' }>): void => {
    if (what === 'nothing') {
      tell({ kind: 'answer', id });
      return;
    }
    if (what === 'connections') {
      tell({ kind: 'answer', id, connections: carrier.connections() });
      return;
    }
    const { user, system } = process.threadCpuUsage();
    const report = carrier.report({
      index: settings.index,
      connections: carrier.streamCount,
      turns: loop.turns,
      sleeps: loop.sleeps,
      heldBytes: carrier.heldBytes,
      cpuSeconds: (user + system) / 1e6,
    });
    tell({ kind: 'answer', id, report });
  };
  const hear = (): void => {
    // It may be closed by then, and the main thread's copy of it still rings.
    if (!isRunning) return;
    wake.take();
    for (let got = receiveMessageOnPort(port); got !== undefined; got = receiveMessageOnPort(port)) {
      const message = got.message as ToLane;
      if (message.kind === 'close') isRunning = false;
      else if (message.kind === 'ask') answer(message);
      else carrier.hear(message);
    }
  };
  lane.watch(wake.fd, pollEvents.in, { onEvents: hear });
  const { heartbeatMs } = settings.channel;
  let sinceHeartbeatNs = 0;
  lane.watch(timer.fd, pollEvents.in, {
    onEvents: () => {
      sinceHeartbeatNs += timer.take() * BEAT_NS;
      const isHeartbeat = sinceHeartbeatNs >= heartbeatMs * 1e6;
      if (isHeartbeat) sinceHeartbeatNs = 0;
      carrier.beat(isHeartbeat);
    },
  });
  timer.set(BEAT_NS, BEAT_NS);
  const all = undo.move();
  const run = (): void => {
    loop.run();
    if (isRunning) {
      setImmediate(run);
      return;
    }
    all.dispose();
    tell({ kind: 'closed' });
    port.close();
  };
  tell({ kind: 'ready' });
  setImmediate(run);
}
