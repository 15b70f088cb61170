// The movers of RDMA by strategy. Imported only when a stream uses RDMA, so that other engines do
// not load the providers.

import type { BlockQueue } from '../../stream/index.ts';
import type { Strategy, Wire } from '../protocol.ts';
import { CopyReceiver, CopySender } from './copy-strategy.ts';
import { PoolReceiver, PoolSender } from './pool-strategy.ts';
import { QpPair } from './qp-pair.ts';
import { openStreamDevice } from './rdma-device.ts';
import type { RdmaMover, RdmaReceiver } from './rdma-mover.ts';
import { RegisterReceiver, RegisterSender } from './register-strategy.ts';

interface RdmaSettings {
  /** Undefined: a device that fits the wire. */
  readonly device: string | undefined;
  readonly wire: Wire;
  readonly localAddress: string;
  readonly strategy: Strategy;
}

/** `remoteBlocks`: how many blocks the receiver's pool has. */
export function openRdmaSender(queue: BlockQueue, rdma: RdmaSettings, remoteBlocks: number): RdmaMover {
  return openMover(rdma, (qpPair) => {
    switch (rdma.strategy) {
      case 'pool':
        return new PoolSender(queue, qpPair, remoteBlocks);
      case 'register':
        return new RegisterSender(queue, qpPair);
      case 'copy':
        return new CopySender(queue, qpPair);
    }
  });
}

export function openRdmaReceiver(queue: BlockQueue, rdma: RdmaSettings): RdmaReceiver {
  return openMover(rdma, (qpPair) => {
    switch (rdma.strategy) {
      case 'pool':
        return new PoolReceiver(queue, qpPair);
      case 'register':
        return new RegisterReceiver(queue, qpPair);
      case 'copy':
        return new CopyReceiver(queue, qpPair);
    }
  });
}

function openMover<T>({ device, wire, localAddress }: RdmaSettings, make: (qpPair: QpPair) => T): T {
  using undo = new DisposableStack();
  const qpPair = undo.use(new QpPair(openStreamDevice(device, wire, localAddress)));
  const mover = make(qpPair);
  undo.move();
  return mover;
}
