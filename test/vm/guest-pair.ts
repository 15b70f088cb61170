// Two guests with one cable, which is a pair of sockets between their QEMUs.

import { Guest, type GuestOptions } from '../../src/lab/vm/index.ts';
import { Socket } from '../../src/native/index.ts';

interface PairOptions extends Omit<GuestOptions, 'name' | 'network'> {
  /** Of both eth0. */
  readonly mtu: number;
}

/** Names, and addresses of eth0. */
const ends = [
  { name: 'vm-a', address: ['10.78.0.1/24', 'fd78::1/64'] },
  { name: 'vm-b', address: ['10.78.0.2/24', 'fd78::2/64'] },
] as const;

export class GuestPair implements AsyncDisposable {
  readonly guests: readonly [Guest, Guest];

  private constructor(guests: readonly [Guest, Guest]) {
    this.guests = guests;
  }

  static async boot({ mtu, ...options }: PairOptions): Promise<GuestPair> {
    await using undo = new AsyncDisposableStack();
    const sockets = Socket.pair();
    const boot = async (index: 0 | 1): Promise<Guest> => {
      const { name, address } = ends[index];
      const network = { cableFd: sockets[index].fd, address, mtu };
      return undo.use(await Guest.boot({ ...options, name, network }));
    };
    // Both have ended when one has failed: what has booted by then is closed.
    const results = await Promise.allSettled([boot(0), boot(1)]);
    for (const socket of sockets) socket.close();
    const [first, second] = results;
    if (first.status === 'rejected') throw first.reason;
    if (second.status === 'rejected') throw second.reason;
    undo.move();
    return new GuestPair([first.value, second.value]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.guests.map((guest) => guest.close()));
  }
}
