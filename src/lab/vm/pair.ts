// Two guests with one cable, which is a pair of sockets between their QEMUs.

import { Socket } from '../../native/index.ts';
import { Guest } from './guest.ts';
import { prepareImage } from './image.ts';
import { cableEnd } from './link.ts';
import { withSecondTry } from './second-try.ts';
import { checkMemory, type GuestOptions, guestSpec } from './spec.ts';

interface PairOptions extends Omit<GuestOptions, 'name' | 'network'> {
  /** Default: `vm-a` and `vm-b`. */
  readonly names?: readonly [string, string];
  /** The MTU of both eth0. Default 1500. */
  readonly mtu?: number;
}

/** Addresses of eth0 of the first and the second guest. */
const pairAddresses = [
  ['10.78.0.1/24', 'fd78::1/64'],
  ['10.78.0.2/24', 'fd78::2/64'],
] as const;

export class GuestPair implements AsyncDisposable {
  readonly guests: readonly [Guest, Guest];

  private constructor(guests: readonly [Guest, Guest]) {
    this.guests = guests;
  }

  static async boot(options: PairOptions = {}): Promise<GuestPair> {
    return withSecondTry(options.signal, () => GuestPair.#boot(options));
  }

  static async #boot(options: PairOptions): Promise<GuestPair> {
    const { names = ['vm-a', 'vm-b'], mtu = 1500, ...rest } = options;
    const optionsOf = (index: 0 | 1): GuestOptions => ({
      ...rest,
      name: names[index],
      network: { address: pairAddresses[index], mtu },
    });
    const { memoryMb, ...spec } = guestSpec(optionsOf(0));
    checkMemory({ ...spec, memoryMb: 2 * memoryMb });
    // The image is made before, so that both guests find it in the cache.
    await prepareImage(rest);
    const failing = new AbortController();
    const signal = AbortSignal.any([failing.signal, ...(rest.signal === undefined ? [] : [rest.signal])]);
    const ends = Socket.pair();
    const bootOne = async (index: 0 | 1): Promise<Guest> => {
      try {
        return await Guest.bootOnLink({ ...optionsOf(index), signal }, cableEnd(ends[index].fd));
      } catch (error) {
        failing.abort(error);
        throw error;
      }
    };
    const [first, second] = await Promise.allSettled([bootOne(0), bootOne(1)]);
    // QEMU has copies of its own.
    for (const end of ends) end.close();
    if (first.status === 'fulfilled' && second.status === 'fulfilled')
      return new GuestPair([first.value, second.value]);
    for (const each of [first, second]) if (each.status === 'fulfilled') await each.value.close();
    throw signal.reason;
  }

  async close(): Promise<void> {
    await Promise.all(this.guests.map((guest) => guest.close()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
