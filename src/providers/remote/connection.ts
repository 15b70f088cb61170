// A connection to a backend: devices are opened over it, and their events come over it.

import { MillraceError } from '../../errors.ts';
import {
  EventFd,
  FdWatch,
  loadAcquire,
  monotonicNs,
  Poller,
  pollEvents,
  type SharedMemory,
  storeRelease,
} from '../../native/index.ts';
import type { GuestTransport, SharedRange, WordReader } from '../../remoting/protocol/index.ts';
import { areaWord, eventKinds, PROTOCOL_MAGIC, PROTOCOL_VERSION } from '../../remoting/protocol/index.ts';
import { PollPolicy, tunings, type WaitMode } from '../../spin/index.ts';
import type { DeviceInfo } from '../../verbs/index.ts';
import { BackendCalls } from './backend-calls.ts';
import { RemoteDevice } from './device.ts';

export interface RemoteConnectionOptions {
  /** How a thread waits for the replies to its calls. Default: `mixed`. */
  readonly wait?: WaitMode;
  /** For people: the backend's lists show it. Default: the name of the program. */
  readonly label?: string;
  /** Whether it is closed with its last device. */
  readonly endsWithDevices?: boolean;
}

interface RemoteEvent {
  readonly kind: number;
  readonly device: number;
  readonly subject: number;
  readonly text: string;
}

export class RemoteConnection implements Disposable {
  readonly backend: BackendCalls;
  readonly pollPolicy = new PollPolicy(tunings.guestPoll, monotonicNs);
  readonly #transport: GuestTransport;
  readonly #area: Uint32Array;
  /** Signalled by this side, when it has taken the doorbell while a call waited. */
  readonly #again = EventFd.create();
  readonly #poller = Poller.create(2);
  readonly #watch: FdWatch;
  readonly #devices = new Map<number, RemoteDevice>();
  readonly #endsWithDevices: boolean;
  #seenEvents = 0;
  #isClosed = false;

  /** Takes the transport over, also when it throws. */
  static open(transport: GuestTransport, options: RemoteConnectionOptions = {}): RemoteConnection {
    using undo = new DisposableStack();
    undo.use(transport);
    const connection = new RemoteConnection(transport, options);
    undo.move();
    using undoMore = new DisposableStack();
    undoMore.use(connection);
    connection.#hello(options.label ?? process.title);
    undoMore.move();
    return connection;
  }

  private constructor(transport: GuestTransport, { wait = 'mixed', endsWithDevices = false }: RemoteConnectionOptions) {
    this.#transport = transport;
    this.#endsWithDevices = endsWithDevices;
    this.#area = new Uint32Array(transport.callArea.buffer);
    this.backend = new BackendCalls(transport, wait, {
      onRung: () => this.#again.signal(),
      onGone: () => this.#onGone(),
    });
    this.#poller.add(transport.fd, pollEvents.in, 0);
    this.#poller.add(this.#again.fd, pollEvents.in, 1);
    // Device events are attended to by the event loop of Node, without keeping the process alive.
    this.#watch = FdWatch.start(this.#poller.fd, () => this.attend());
  }

  /** Readable when `attend` has something to do. */
  get fd(): number {
    return this.#poller.fd;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  listDevices(): readonly DeviceInfo[] {
    const results = this.backend.call('listDevices');
    const count = results.u32();
    return Array.from({ length: count }, () => {
      const name = results.text();
      const transport = results.text() || name.replace(/^soft-/, '');
      return { name, provider: 'remote', guid: '', transport };
    });
  }

  openDevice(name: string): RemoteDevice {
    const results = this.backend.call('openDevice', (writer) => writer.text(name));
    const handle = results.u32();
    const device = new RemoteDevice(this, handle, name, results.text());
    this.#devices.set(handle, device);
    return device;
  }

  /** For devices, when they are closed. */
  forget(device: RemoteDevice): void {
    this.#devices.delete(device.handle);
    if (this.#endsWithDevices && this.#devices.size === 0) this.close();
  }

  map(range: SharedRange): SharedMemory {
    return this.#transport.map(range);
  }

  offer(memory: SharedMemory): SharedRange {
    return this.#transport.offer(memory);
  }

  /** Notifies the channels of CQs whose event is due, and fetches the events of devices. */
  attend(): void {
    if (this.#isClosed) return;
    this.#again.take();
    this.#take();
    // Cleared before the queues are checked. Partner: `GuestSession.#ringForEvent`, which runs
    // after the event was stored.
    storeRelease(this.#area, areaWord.guestRung, 0);
    for (const device of this.#devices.values()) device.notifyChannels();
    if (this.backend.isGone) return;
    // Partner: `GuestSession.#announceEvent`, which adds to it after the event was stored.
    const events = loadAcquire(this.#area, areaWord.eventCount);
    if (events === this.#seenEvents) return;
    this.#seenEvents = events;
    for (const event of readEvents(this.backend.call('takeEvents'))) this.#publish(event);
  }

  /**
   * Finds out whether the backend is alive. Sleeps for at most so long, or until the doorbell is
   * rung.
   */
  checkAlive(timeoutNs = 0): void {
    if (this.backend.isGone || !this.backend.isRung(timeoutNs)) return;
    this.#take();
    // It may have been rung for a thread that waits on a channel. Partner: the exchange of
    // `GuestSession.#ringForEvent`.
    if (loadAcquire(this.#area, areaWord.guestRung) !== 0) this.#again.signal();
  }

  close(): void {
    if (this.#isClosed) return;
    for (const device of this.#devices.values()) device.close();
    // Closing the last device may have closed the connection.
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.backend.end('this side has closed the connection');
    this.#watch.close();
    this.#poller.close();
    this.#again.close();
    this.backend.close();
    this.#transport.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #take(): void {
    if (this.backend.isGone || this.#transport.takeDoorbell()) return;
    this.backend.end('it has ended, or ended the connection');
    this.#onGone();
  }

  #hello(label: string): void {
    const { magic, version } = areaWord;
    // The backend writes its version before it serves calls, so both are there once this call has
    // returned.
    this.backend.call('hello', (writer) => writer.u32(PROTOCOL_VERSION).text(label, 64));
    if (this.#area[magic] !== PROTOCOL_MAGIC || this.#area[version] !== PROTOCOL_VERSION) {
      throw new MillraceError(
        'MILLRACE_ERR_PROTOCOL',
        'connect to a remoting backend: the process that answered is no backend of this version',
      );
    }
  }

  #onGone(): void {
    for (const device of this.#devices.values()) device.onBackendGone();
    // Threads that wait on a channel are woken.
    this.#again.signal();
  }

  #publish({ kind, device: handle, subject, text }: RemoteEvent): void {
    const device = this.#devices.get(handle);
    if (device === undefined) return;
    if (kind === eventKinds.qpFatal) device.publish({ kind: 'qpFatal', qpNumber: subject, reason: text });
    else if (kind === eventKinds.cqOverrun) device.publishCqOverrun(subject);
    else if (kind === eventKinds.srqLimit) device.publishSrqLimit(subject);
    else if (kind === eventKinds.portChange) device.publishPort(subject, text);
    else if (kind === eventKinds.deviceGone) device.publish({ kind: 'deviceGone' });
  }
}

function readEvents(results: WordReader): readonly RemoteEvent[] {
  return Array.from({ length: results.u32() }, () => ({
    kind: results.u32(),
    device: results.u32(),
    subject: results.u32(),
    text: results.text(),
  }));
}
