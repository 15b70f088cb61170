// Tests of the listeners of a lane, with clients on the loopback.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { MillraceError } from '../errors.ts';
import { Acceptor, EventLoop } from '../loop/index.ts';
import { type Address, ip, Socket } from '../native/index.ts';
import { type ListenerPlace, ListenerSet } from './listener-set.ts';

/** Addresses have ten ports for connections to one listener, so that five clients are enough. */
class Listeners implements Disposable {
  readonly set: ListenerSet;
  readonly admitted: ListenerPlace[] = [];
  isShort = false;
  opened = 0;
  readonly #loop: EventLoop;
  readonly #undo = new DisposableStack();

  constructor() {
    const loop = this.#undo.use(new EventLoop());
    this.#loop = loop;
    const open = (address: Address, onAccept: (socket: Socket) => void): Acceptor => {
      if (this.isShort) throw new MillraceError('MILLRACE_ERR_FAILED', 'no descriptors are left');
      this.opened++;
      return new Acceptor({ loop, address, bufferBytes: 65_536, onAccept, onPause: () => {}, onTurnedAway: () => {} });
    };
    const admit = (socket: Socket, place: ListenerPlace): void => {
      this.#undo.use(socket);
      this.set.entered(place);
      this.admitted.push(place);
    };
    this.set = this.#undo.use(new ListenerSet({ address: ip('127.0.0.1', 0), roomy: 1, open, admit, ports: 10 }));
  }

  /** The ports where clients are sent, in order. */
  get ports(): readonly number[] {
    return this.set.listeners.map(({ localAddress }) => (localAddress.family === 'unix' ? 0 : localAddress.port));
  }

  /** So many clients connect to the first of these, and are accepted. */
  connect(count: number): void {
    const due = this.admitted.length + count;
    const [first] = this.ports;
    assert.ok(first !== undefined);
    for (let n = 0; n < count; n++) this.#undo.use(Socket.stream('ipv4')).connect(ip('127.0.0.1', first));
    while (this.admitted.length < due) this.#loop.turn(-1);
  }

  [Symbol.dispose](): void {
    this.#undo.dispose();
  }
}

describe('the listeners of a lane', () => {
  test('one with half as many clients as there are ports gets no more until some have ended; others are opened', () => {
    using listeners = new Listeners();
    const { set } = listeners;
    const [first] = listeners.ports;
    listeners.connect(4);
    assert.equal(set.isStale, false);
    listeners.connect(1);
    assert.equal(set.isStale, true);
    assert.deepEqual(listeners.ports, [first], 'it is better than none');
    set.refresh();
    const [second] = listeners.ports;
    assert.notEqual(second, first);
    assert.equal(listeners.ports.length, 1);
    listeners.connect(5);
    const [place] = listeners.admitted;
    assert.ok(place !== undefined);
    set.left(place);
    set.refresh();
    assert.equal(listeners.opened, 3, 'one more that has ended is not enough');
    set.left(place);
    set.refresh();
    assert.deepEqual(listeners.ports[0], first);
    assert.equal(listeners.ports.length, 2);
    assert.equal(listeners.opened, 3);
  });

  test('where no other can be opened, that is told once, and those that there are serve on', () => {
    using listeners = new Listeners();
    const { set } = listeners;
    const before = listeners.ports;
    listeners.isShort = true;
    listeners.connect(5);
    assert.throws(() => set.refresh(), /no descriptors are left/);
    assert.deepEqual(listeners.ports, before);
    listeners.connect(3);
    set.refresh();
    assert.deepEqual(listeners.ports, before);
  });
});
