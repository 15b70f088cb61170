// The setup of one side of a perf run: device, memory, connected queue pairs, and the peer's
// endpoints.

import {
  access,
  CompletionBatch,
  type Connected,
  type Cq,
  connectQp,
  type Device,
  type Mr,
  openDevice,
  openSoftDevice,
  type Pd,
  type Qp,
  ReceiveBatch,
} from '../providers/index.ts';
import type { Conversation } from './conversation.ts';
import type { PerfParameters } from './parameters.ts';

export interface PerfSetup extends Disposable {
  readonly parameters: PerfParameters;
  readonly device: Device;
  readonly cq: Cq;
  readonly completions: CompletionBatch;
  readonly qps: readonly Qp[];
  /** The memory that this side sends from. */
  readonly source: Mr;
  /** The memory that the peer writes to, reads from or sends to. */
  readonly target: Mr;
  readonly peers: readonly Connected<'target'>[];
}

/** Receives posted on every queue pair of a send test. */
export const receiveDepth = 256;

/** A device on the `tcp` wire uses the address by which the peer reached this host. */
export function openPerfDevice(name: string | undefined, conversation: Conversation): Device {
  return name === 'soft-tcp' ? openSoftDevice({ wire: 'tcp', address: conversation.localAddress }) : openDevice(name);
}

/** Takes over the device. */
export async function connectSetup(
  device: Device,
  parameters: PerfParameters,
  conversation: Conversation,
): Promise<PerfSetup> {
  const { sizeBytes, queuePairs, txDepth } = parameters;
  using undo = new DisposableStack();
  undo.use(device);
  const pd = device.createPd();
  const flags = access.localWrite | access.remoteWrite | access.remoteRead | access.remoteAtomic;
  const source = pd.allocate({ sizeBytes: Math.max(sizeBytes, 64) });
  const target = pd.allocate({ sizeBytes: Math.max(sizeBytes, 64), access: flags });
  const cq = device.createCq({
    entries: Math.min(device.attributes.maxCqEntries, queuePairs * (txDepth + receiveDepth)),
  });
  const completions = undo.use(new CompletionBatch(256));
  const qps: Qp[] = [];
  const peers: Connected<'target'>[] = [];
  for (let index = 0; index < queuePairs; index++) {
    const qp = createQp(pd, cq, parameters, target);
    qps.push(qp);
    using limit = conversation.timeLimit();
    const options = { regions: { target }, expect: ['target'], signal: limit.signal } as const;
    peers.push(await connectQp(conversation.socket, qp, options));
  }
  const kept = undo.move();
  const dispose = (): void => kept.dispose();
  return { parameters, device, cq, completions, qps, source, target, peers, [Symbol.dispose]: dispose };
}

function createQp(pd: Pd, cq: Cq, { test, sizeBytes, txDepth }: PerfParameters, target: Mr): Qp {
  const maxInlineBytes = Math.min(64, pd.device.attributes.maxInlineBytes);
  const qp = pd.createQp({
    sendCq: cq,
    sendRequests: txDepth,
    receiveRequests: receiveDepth,
    maxSge: 1,
    maxInlineBytes,
  });
  if (!test.startsWith('send')) return qp;
  // Receives are posted before the peer can send.
  qp.init();
  using receives = new ReceiveBatch({ capacity: receiveDepth, maxSge: 1 });
  for (let index = 0; index < receiveDepth; index++) {
    receives.receive(index).sge(target.lkey, target.address, sizeBytes);
  }
  qp.postReceive(receives);
  return qp;
}
