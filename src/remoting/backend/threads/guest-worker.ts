// The thread that serves a guest: takes turns, spins or sleeps when there is no work, and serves
// another guest after this one.

import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { MillraceError } from '../../../errors.ts';
import { EventFd, monotonicNs, nameThread, Poller, pollEvents, storeRelease } from '../../../native/index.ts';
import { SpinPolicy, spinNsOf, tunings } from '../../../spin/index.ts';
import type { GuestReport } from '../../../status/index.ts';
import type { DeviceEventSource } from '../../../verbs/index.ts';
import type { HostTransport } from '../../protocol/index.ts';
import { openHostTransport } from '../../transports/index.ts';
import { GrantedDevices } from '../guest/granted-devices.ts';
import type { DeviceObject } from '../guest/guest-objects.ts';
import { GuestSession } from '../guest/guest-session.ts';
import { HostShare } from '../guest/host-share.ts';
import type { FromGuestWorker, GuestSettings, GuestWorkerData, ToGuestWorker } from './guest-messages.ts';

/**
 * How often a thread that is busy or spins polls its descriptors, of which one tells that the guest
 * has ended.
 */
const POLL_INTERVAL_NS = 2_000_000;

/** A busy thread reads the clock once in so many turns. */
const TURNS_A_CLOCK = 64;

const GUEST = 0;
const MONITOR = 1;
const FIRST_DEVICE = 2;

if (parentPort === null) throw new Error('a guest is served by a worker thread');
const port = parentPort;
const { wakeFd, adopted, host, ownShare } = workerData as GuestWorkerData;
const share = new HostShare(host, ownShare);
const tell = (message: FromGuestWorker): void => port.postMessage(message);

class GuestLoop implements Disposable {
  readonly #resources: DisposableStack;
  readonly #poller: Poller;
  readonly #wake: EventFd;
  readonly #transport: HostTransport;
  readonly #session: GuestSession;
  readonly #spinPolicy: SpinPolicy;
  readonly #devices = new Map<number, DeviceObject>();
  readonly #eventSources = new Map<number, DeviceEventSource>();
  #nextToken = FIRST_DEVICE;
  #turns = 0;
  #sleeps = 0;
  #polledNs = 0;
  /** Why it ends; undefined while it runs. */
  #end: string | undefined;
  isLast = false;

  constructor({ transport, grants, limits, hugePages, wait, record }: GuestSettings) {
    using undo = new DisposableStack();
    this.#transport = undo.use(openHostTransport(transport));
    this.#poller = undo.use(Poller.create(64));
    this.#wake = undo.use(EventFd.duplicateOf(wakeFd));
    this.#spinPolicy = new SpinPolicy(tunings.backendThread, spinNsOf(wait));
    const devices = undo.use(new GrantedDevices(grants, record));
    this.#session = undo.use(
      new GuestSession({
        transport: this.#transport,
        limits,
        host: share,
        hugePages,
        grants,
        openDevice: (grant) => devices.open(grant),
        onDevice: (device) => this.#watch(device),
        onDeviceClosing: (device) => this.#unwatch(device),
      }),
    );
    this.#poller.add(this.#transport.fd, pollEvents.in, GUEST);
    this.#poller.add(this.#wake.fd, pollEvents.in, MONITOR);
    this.#resources = undo.move();
  }

  /** Serves until the guest has ended; returns why. Throws on a protocol error of the guest. */
  run(): string {
    while (this.#end === undefined) {
      this.#turns++;
      const done = this.#session.turn();
      // Reading the clock costs as much as a request, so a busy thread does it only now and then.
      if (done > 0 && !this.#spinPolicy.isWaiting && this.#turns % TURNS_A_CLOCK !== 0) continue;
      const nowNs = monotonicNs();
      if (nowNs - this.#polledNs > POLL_INTERVAL_NS) this.#poll(0, nowNs);
      if (done > 0) {
        this.#spinPolicy.found(nowNs);
        continue;
      }
      if (this.#session.spin()) continue;
      if (this.#spinPolicy.maySpin(nowNs) || !this.#session.prepareSleep()) continue;
      this.#sleeps++;
      this.#poll(-1, nowNs);
      this.#session.awake();
    }
    return this.#end;
  }

  [Symbol.dispose](): void {
    this.#resources.dispose();
  }

  #poll(timeoutNs: number, nowNs: number): void {
    this.#polledNs = nowNs;
    const count = this.#poller.wait(timeoutNs);
    for (let index = 0; index < count; index++) {
      const token = this.#poller.token(index);
      if (token === GUEST) {
        if (!this.#transport.takeDoorbell()) this.#end = 'the guest has ended';
      } else if (token === MONITOR) {
        this.#hear();
      } else {
        this.#devices.get(token)?.channel.take();
        if (this.#eventSources.get(token)?.take() === false) this.#forget(token);
      }
    }
  }

  #hear(): void {
    this.#wake.take();
    for (let got = receiveMessageOnPort(port); got !== undefined; got = receiveMessageOnPort(port)) {
      const message = got.message as ToGuestWorker;
      if (message.kind === 'report') tell({ kind: 'report', ask: message.ask, report: this.#report() });
      else this.#end = 'the backend has ended it';
      if (message.kind === 'exit') this.isLast = true;
    }
  }

  #report(): GuestReport {
    const { guest, counts } = this.#session;
    const { user, system } = process.threadCpuUsage();
    return {
      label: guest.label,
      counts: { ...counts },
      used: { ...guest.quota.used },
      objects: guest.objects.count,
      turns: this.#turns,
      sleeps: this.#sleeps,
      averageWaitNs: this.#spinPolicy.averageNs,
      cpuSeconds: (user + system) / 1e6,
    };
  }

  #watch(device: DeviceObject): void {
    const token = this.#nextToken++;
    this.#devices.set(token, device);
    this.#poller.add(device.channel.fd, pollEvents.in, token);
    const { eventSource } = device.device;
    if (eventSource === undefined) return;
    // The events of devices are read here, because this thread does not return to the event loop of
    // Node.
    const eventToken = this.#nextToken++;
    this.#eventSources.set(eventToken, eventSource);
    this.#poller.add(eventSource.fd, pollEvents.in, eventToken);
  }

  #unwatch(device: DeviceObject): void {
    for (const [token, candidate] of this.#devices) {
      if (candidate !== device) continue;
      this.#devices.delete(token);
      this.#poller.remove(device.channel.fd);
    }
    for (const [token, source] of this.#eventSources) {
      if (source === device.device.eventSource) this.#forget(token);
    }
  }

  #forget(eventToken: number): void {
    const source = this.#eventSources.get(eventToken);
    if (source === undefined) return;
    this.#eventSources.delete(eventToken);
    this.#poller.remove(source.fd);
  }
}

/** True when the thread is to end as well. */
function serve(settings: GuestSettings): boolean {
  nameThread(`guest-${settings.id}`);
  // From here on the descriptors are closed with this thread. Partner: `GuestThread.#closeLeft`,
  // after the thread has ended.
  storeRelease(adopted, 0, settings.id);
  let reason = '';
  let isProtocolError = false;
  let isLast = false;
  try {
    using loop = new GuestLoop(settings);
    reason = loop.run();
    isLast = loop.isLast;
  } catch (error) {
    isProtocolError = error instanceof MillraceError && error.code === 'MILLRACE_ERR_PROTOCOL';
    reason = error instanceof Error ? error.message : String(error);
  }
  share.clear();
  tell({ kind: 'ended', reason, isProtocolError });
  return isLast;
}

// While a guest is served, this thread does not return to the event loop of Node: `#hear` gets its
// messages then.
port.on('message', (message: ToGuestWorker) => {
  const isOver = message.kind === 'serve' ? serve(message.settings) : message.kind === 'exit';
  if (message.kind === 'report') tell({ kind: 'report', ask: message.ask, report: undefined });
  if (isOver) port.close();
});
