// The suite through remoting: its two ends are guests, with a connection each to a backend, and a
// device of it for each test.

import { RemoteConnection } from '../../src/providers/remote/index.ts';
import type { GuestTransport } from '../../src/remoting/protocol/transport.ts';
import { Device } from '../../src/verbs/index.ts';
import type { ConformanceTarget } from './target.ts';

export class RemoteEnds implements Disposable {
  readonly #left: RemoteConnection;
  readonly #right: RemoteConnection;

  constructor(connect: () => GuestTransport) {
    using undo = new DisposableStack();
    this.#left = undo.use(RemoteConnection.open(connect()));
    this.#right = RemoteConnection.open(connect());
    undo.move();
  }

  /** On the backend's device of that name. */
  target(name: string, device: string, lacks: ConformanceTarget['lacks'] = {}): ConformanceTarget {
    return {
      name,
      lacks,
      open: async () => {
        const pair = {
          left: new Device(this.#left.openDevice(device)),
          right: new Device(this.#right.openDevice(device)),
        };
        return {
          ...pair,
          async [Symbol.asyncDispose]() {
            pair.left.close();
            pair.right.close();
          },
        };
      },
    };
  }

  close(): void {
    this.#left.close();
    this.#right.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
