// A connection to a backend: devices are opened over it, and what happens to them is heard through it.

import { MillraceError } from '../../errors.ts';
import { EventFd, FdWatch, Poller, pollEvents, type SharedMemory } from '../../native/index.ts';
import type { GuestTransport, SharedRange, WordReader } from '../../remoting/protocol/index.ts';
import { areaWord, eventKinds, PROTOCOL_MAGIC, PROTOCOL_VERSION } from '../../remoting/protocol/index.ts';
import type { WaitMode } from '../../spin/index.ts';
import type { DeviceInfo } from '../../verbs/index.ts';
import { Caller } from './caller.ts';
import { RemoteDevice } from './device.ts';
import { PollPatience } from './poll-patience.ts';

export interface RemoteConnectionOptions {
  /** How calls are waited for. Default: `mixed`. */
  readonly wait?: WaitMode;
  /** What the backend's lists show. Default: the name of the program. */
  readonly label?: string;
  /** Closed when its last device is. */
  readonly endsWithDevices?: boolean;
}

interface RemoteEvent {
  readonly kind: number;
  readonly device: number;
  readonly subject: number;
  readonly text: string;
}

export class RemoteConnection implements Disposable {
  readonly caller: Caller;
  readonly patience = new PollPatience();
  readonly #transport: GuestTransport;
  readonly #area: Uint32Array;
  /** Rung by ourselves: a bell was taken while a call was waited for. */
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
    this.caller = new Caller(transport, wait, { onRung: () => this.#again.signal(), onGone: () => this.#onGone() });
    this.#poller.add(transport.fd, pollEvents.in, 0);
    this.#poller.add(this.#again.fd, pollEvents.in, 1);
    // Events are heard whenever the thread has nothing else to do, without keeping the process alive.
    this.#watch = FdWatch.start(this.#poller.fd, () => this.attend());
  }

  /** Readable when `attend` has something to do. */
  get fd(): number {
    return this.#poller.fd;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  get deviceCount(): number {
    return this.#devices.size;
  }

  listDevices(): readonly DeviceInfo[] {
    const results = this.caller.call('listDevices');
    const count = results.u32();
    return Array.from({ length: count }, () => {
      const name = results.text();
      const transport = results.text() || name.replace(/^soft-/, '');
      return { name, provider: 'remote', guid: '', transport };
    });
  }

  openDevice(name: string): RemoteDevice {
    const results = this.caller.call('openDevice', (writer) => writer.text(name));
    const handle = results.u32();
    const device = new RemoteDevice(this, handle, name, results.text());
    this.#devices.set(handle, device);
    return device;
  }

  /** For devices: they are closed. */
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

  /** Something may have happened: looks which CQs have had their event, and fetches the events of devices. */
  attend(): void {
    if (this.#isClosed) return;
    this.#again.take();
    this.#take();
    // Taken back before looking. Partner: the backend stores what it has, and then exchanges this word.
    Atomics.store(this.#area, areaWord.guestRung, 0);
    for (const device of this.#devices.values()) device.notifyChannels();
    if (this.caller.isGone || Atomics.load(this.#area, areaWord.eventCount) === this.#seenEvents) return;
    this.#seenEvents = Atomics.load(this.#area, areaWord.eventCount);
    for (const event of readEvents(this.caller.call('takeEvents'))) this.#publish(event);
  }

  /** Notices a backend that has gone. Sleeps for at most so long while nothing is to be heard. */
  checkAlive(timeoutNs = 0): void {
    if (this.caller.isGone || !this.caller.isRung(timeoutNs)) return;
    this.#take();
    // What it was rung for may be for somebody who waits on a channel.
    if (Atomics.load(this.#area, areaWord.guestRung) !== 0) this.#again.signal();
  }

  close(): void {
    if (this.#isClosed) return;
    for (const device of this.#devices.values()) device.close();
    // The last device may have taken it along.
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.caller.end('this side has closed the connection');
    this.#watch.close();
    this.#poller.close();
    this.#again.close();
    this.caller.close();
    this.#transport.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #take(): void {
    if (this.caller.isGone || this.#transport.take()) return;
    this.caller.end('it has ended, or ended the connection');
    this.#onGone();
  }

  #hello(label: string): void {
    const { magic, version } = areaWord;
    // The backend writes its version before it looks for calls, so an answer to this one is good for both.
    this.caller.call('hello', (writer) => writer.u32(PROTOCOL_VERSION).text(label, 64));
    if (this.#area[magic] !== PROTOCOL_MAGIC || this.#area[version] !== PROTOCOL_VERSION) {
      throw new MillraceError('MILLRACE_ERR_PROTOCOL', 'connect to a remoting backend: what answered is none');
    }
  }

  #onGone(): void {
    for (const device of this.#devices.values()) device.onBackendGone();
    // Whoever waits on a channel learns of it at the next turn.
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
