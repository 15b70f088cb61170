// Events of a backend on the diagnostics channel `millrace:guest`: guests that connect, are
// refused, end or are dropped.

import { channel } from 'node:diagnostics_channel';

export interface GuestEventMessage {
  /** `dropped`: after a protocol error. */
  readonly what: 'connected' | 'refused' | 'ended' | 'dropped';
  /** 0 for a guest that was refused. */
  readonly guest: number;
  readonly peer: string;
  /** Why, in one line; '' for `connected`. */
  readonly reason: string;
}

const guests = channel('millrace:guest');

/** Calls `listener` for every event until it is disposed of. */
export function subscribeGuests(listener: (event: GuestEventMessage) => void): Disposable {
  // Only `publishGuest` should publish here, and it takes nothing else.
  const heard = (message: unknown): void => listener(message as GuestEventMessage);
  guests.subscribe(heard);
  return {
    [Symbol.dispose]: () => {
      guests.unsubscribe(heard);
    },
  };
}

export function publishGuest(event: GuestEventMessage): void {
  if (guests.hasSubscribers) guests.publish(event);
}
