// The thread of a lane: takes the main thread's messages, runs the loop, and closes everything at
// its end.

import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { EventLoop } from '../loop/index.ts';
import { EventFd, Fd, IdleCollector, nameThread, pollEvents, TimerFd, threadId } from '../native/index.ts';
import { SpinPolicy, tunings } from '../spin/index.ts';
import { LANE_BEAT_NS } from '../steering/index.ts';
import { SignsOfLife } from '../watchdog/index.ts';
import { Lane } from './lane.ts';
import { LaneLoop } from './lane-loop.ts';
import { MainWatch } from './main-watch.ts';
import type { FromLane, LaneSettings, ToLane } from './messages.ts';

/** Deadlines are checked at every second sign of life. */
const SIGNS_PER_BEAT = 2;
const BEAT_NS = SIGNS_PER_BEAT * LANE_BEAT_NS;
/** Between two heartbeats; an idle lane takes some for its timers and pings. */
const IDLE_TURNS = 100;

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
  const loop = undo.use(new EventLoop());
  let isRunning = true;
  let awaiting = 0;
  const wait = (work: Promise<void>): void => {
    awaiting++;
    void work.finally(() => awaiting--);
  };
  const signs = new SignsOfLife(settings.watchdog.signs);
  const own = settings.index + 1;
  signs.begin(own, threadId());
  const mainWatch = new MainWatch({ settings: settings.watchdog, signs, wait });
  const lane = undo.use(new Lane(loop, settings, { tell, wait }));
  // A duplicate: the main thread closes its own descriptor.
  const wake = undo.use(EventFd.adopt(new Fd(settings.wakeFd).duplicate().release()));
  const timer = undo.use(TimerFd.create());
  const { spinUs, heartbeatMs } = settings.channel;
  const laneLoop = new LaneLoop({
    loop,
    sessions: () => lane.linkedSessions,
    mirrors: lane.mirrors,
    spinPolicy: new SpinPolicy(tunings.lane, spinUs === 'auto' ? undefined : spinUs * 1000),
    isRunning: () => isRunning,
    isAwaiting: () => awaiting > 0,
  });
  const answer = ({ id, what }: Extract<ToLane, { kind: 'ask' }>): void => {
    if (what === 'nothing') {
      tell({ kind: 'answer', id });
      return;
    }
    if (what === 'connections') {
      tell({ kind: 'answer', id, connections: lane.connections() });
      return;
    }
    const { user, system } = process.threadCpuUsage();
    const report = lane.report({
      index: settings.index,
      connections: lane.connectionCount,
      turns: laneLoop.turns,
      sleeps: laneLoop.sleeps,
      heldBytes: lane.heldBytes,
      cpuSeconds: (user + system) / 1e6,
      stuckSeconds: 0,
    });
    tell({ kind: 'answer', id, report });
  };
  const hear = (): void => {
    // The lane may be closed by now, and the main thread still signals its copy.
    if (!isRunning) return;
    wake.take();
    for (let got = receiveMessageOnPort(port); got !== undefined; got = receiveMessageOnPort(port)) {
      const message = got.message as ToLane;
      if (message.kind === 'close') isRunning = false;
      else if (message.kind === 'ask') answer(message);
      else lane.hear(message);
    }
  };
  loop.watch(wake.fd, pollEvents.in, { onEvents: hear });
  let sinceHeartbeatNs = 0;
  let beats = 0;
  let turnsAtHeartbeat = 0;
  const collector = new IdleCollector();
  loop.watch(timer.fd, pollEvents.in, {
    onEvents: () => {
      beats += timer.take();
      lane.signOfLife();
      signs.give(own);
      mainWatch.look();
      if (beats < SIGNS_PER_BEAT) return;
      sinceHeartbeatNs += (beats / SIGNS_PER_BEAT) * BEAT_NS;
      beats = 0;
      const isHeartbeat = sinceHeartbeatNs >= heartbeatMs * 1e6;
      if (isHeartbeat) sinceHeartbeatNs = 0;
      lane.beat(isHeartbeat);
      if (!isHeartbeat) return;
      if (laneLoop.turns - turnsAtHeartbeat < IDLE_TURNS) collector.onIdle();
      turnsAtHeartbeat = laneLoop.turns;
    },
  });
  timer.set(LANE_BEAT_NS, LANE_BEAT_NS);
  const all = undo.move();
  const run = (): void => {
    laneLoop.run();
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
