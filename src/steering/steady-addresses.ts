// This host's addresses, also while a cable is out: Node lists only interfaces that have a carrier,
// and the kernel keeps the addresses of the others.

import { constants } from 'node:os';
import { SystemError } from '../errors.ts';
import { ip, Socket } from '../native/index.ts';
import { ownAddresses } from './listeners.ts';

const { EADDRNOTAVAIL } = constants.errno;

export class SteadyAddresses {
  #known: readonly string[] = [];
  readonly #list: () => readonly string[];

  constructor(list: () => readonly string[] = ownAddresses) {
    this.#list = list;
  }

  /** Those of interfaces that work, and those seen before that are still this host's. */
  read(): readonly string[] {
    const now = this.#list();
    const silent = this.#known.filter((address) => !now.includes(address) && isOwn(address));
    this.#known = [...now, ...silent];
    return this.#known;
  }
}

function isOwn(address: string): boolean {
  const place = ip(address, 0);
  if (place.family === 'unix') return false;
  using socket = Socket.stream(place.family);
  try {
    socket.bind(place);
    return true;
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    // Another reason says nothing about the address.
    return error.errno !== -EADDRNOTAVAIL;
  }
}
