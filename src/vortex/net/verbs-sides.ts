// The two ends of a stream on RDMA, by strategy. Imported only where a stream uses RDMA: most do not need the providers.

import type { BlockQueue } from '../stream/index.ts';
import { CopyReceiver, CopySender } from './copy-strategy.ts';
import type { ReceiveMover } from './mover.ts';
import { PoolReceiver, PoolSender } from './pool-strategy.ts';
import type { Strategy, Wire } from './protocol.ts';
import { RegisterReceiver, RegisterSender } from './register-strategy.ts';
import { openStreamDevice } from './verbs-device.ts';
import type { VerbsMover } from './verbs-mover.ts';
import { VerbsPath } from './verbs-path.ts';

export interface VerbsPlace {
  /** Undefined: one that fits the wire. */
  readonly device: string | undefined;
  readonly wire: Wire;
  readonly localAddress: string;
  readonly strategy: Strategy;
}

/** `remoteBlocks`: of the receiver's pool. */
export function openVerbsSender(queue: BlockQueue, place: VerbsPlace, remoteBlocks: number): VerbsMover {
  return openSide(place, (path) => {
    switch (place.strategy) {
      case 'pool':
        return new PoolSender(queue, path, remoteBlocks);
      case 'register':
        return new RegisterSender(queue, path);
      case 'copy':
        return new CopySender(queue, path);
    }
  });
}

export function openVerbsReceiver(queue: BlockQueue, place: VerbsPlace): VerbsMover & ReceiveMover {
  return openSide(place, (path) => {
    switch (place.strategy) {
      case 'pool':
        return new PoolReceiver(queue, path);
      case 'register':
        return new RegisterReceiver(queue, path);
      case 'copy':
        return new CopyReceiver(queue, path);
    }
  });
}

function openSide<T>({ device, wire, localAddress }: VerbsPlace, make: (path: VerbsPath) => T): T {
  using undo = new DisposableStack();
  const path = undo.use(new VerbsPath(openStreamDevice(device, wire, localAddress)));
  const side = make(path);
  undo.move();
  return side;
}
