// Asynchronous events of the device: read from its descriptor, on Node's event loop or by a thread
// that does not return to it, and translated to events of the object model.

import { AGAIN, FdWatch, ibverbs } from '../../native/index.ts';
import type { DeviceEvent, DeviceEventSource } from '../../verbs/index.ts';
import type { IbvCq } from './cq.ts';
import type { Handle } from './handle.ts';
import { portState, readAttributes } from './port.ts';
import type { IbvSrq } from './srq.ts';

/** enum ibv_event_type. */
const eventTypes = {
  cqError: 0,
  qpFatal: 1,
  qpRequestError: 2,
  qpAccessError: 3,
  deviceFatal: 8,
  portActive: 9,
  portError: 10,
  srqError: 14,
  srqLimitReached: 15,
} as const;

const reasons: Readonly<Record<number, string>> = {
  [eventTypes.qpFatal]: 'the device could not go on with it',
  [eventTypes.qpRequestError]: 'the peer sent a request that makes no sense',
  [eventTypes.qpAccessError]: 'the peer tried to touch memory it may not',
};

/** Finds the objects whose handles events carry. */
interface EventSubjects {
  cq(handle: number): IbvCq | undefined;
  srq(handle: number): IbvSrq | undefined;
}

export class EventReader implements DeviceEventSource {
  readonly fd: number;
  readonly #context: Handle;
  readonly #subjects: EventSubjects;
  readonly #watch: FdWatch;
  #listener: (event: DeviceEvent) => void = () => {};
  #isClosed = false;
  #isGone = false;

  constructor(context: Handle, fd: number, subjects: EventSubjects) {
    this.#context = context;
    this.#subjects = subjects;
    this.fd = fd;
    this.#watch = FdWatch.start(fd, () => void this.take());
  }

  onEvent(listener: (event: DeviceEvent) => void): void {
    this.#listener = listener;
  }

  close(): void {
    this.#isClosed = true;
    this.#watch.close();
  }

  /** A listener may close the device. */
  take(): boolean {
    while (!this.#isClosed) {
      const taken = ibverbs.ibvTakeEvent(this.#context.value);
      if (taken === AGAIN) return true;
      if (typeof taken === 'number') {
        // The descriptor of a device that is gone stays readable without events.
        this.#watch.close();
        this.#gone();
        return false;
      }
      this.#tell(...taken);
    }
    return false;
  }

  #tell(type: number, subject: number, qpNumber: number): void {
    const reason = reasons[type];
    if (reason !== undefined) this.#listener({ kind: 'qpFatal', qpNumber, reason });
    else if (type === eventTypes.cqError) {
      const cq = this.#subjects.cq(subject);
      if (cq !== undefined) this.#listener({ kind: 'cqOverrun', cq });
    } else if (type === eventTypes.srqLimitReached) {
      const srq = this.#subjects.srq(subject);
      if (srq !== undefined) this.#listener({ kind: 'srqLimit', srq });
    } else if (type === eventTypes.portActive || type === eventTypes.portError) {
      // The current state is read, because events may come late.
      const { state } = readAttributes(this.#context, subject);
      this.#listener({ kind: 'portChange', portNumber: subject, state: portState(state) });
    } else if (type === eventTypes.deviceFatal) this.#gone();
  }

  #gone(): void {
    if (this.#isGone) return;
    this.#isGone = true;
    this.#listener({ kind: 'deviceGone' });
  }
}
