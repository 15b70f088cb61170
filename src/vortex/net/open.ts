// Opening the two ends of a stream between hosts.

import { UsageError } from '../../errors.ts';
import { type ControlSecurity, readSecurity } from '../../tls/index.ts';
import type { BlockQueue } from '../stream/index.ts';
import { Consumer, checkOptions, createStreamQueue, Producer, type StreamOptions } from '../stream/index.ts';
import { EngineClient } from './engine/client.ts';
import { type Strategy, strategies } from './protocol.ts';

const DEFAULT_TIMEOUT_MS = 10_000;
const MIN_TIMEOUT_MS = 100;
const DEFAULT_MAX_POOL_BYTES = 2 ** 30;

/**
 * Paths of PEM files, as in the `tls` of the daemon's config. Both certificates are of the same
 * authority.
 */
export interface StreamTls {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  /** Revocation lists of the authority. Default: nothing is revoked. */
  readonly crl?: string | undefined;
  /** The name that the peer's certificate must have. Default: any of that authority. */
  readonly peerName?: string | undefined;
}

export interface NetworkOptions extends Omit<StreamOptions, 'timeoutMs'> {
  /**
   * An RDMA device (`soft-shm`, `soft-roce`, `soft-tcp`, `mlx5_0`). Default: plain TCP at a sender;
   * a device that fits the sender's at a receiver.
   */
  readonly device?: string | undefined;
  /** How blocks move on RDMA. Default `pool` at a sender; the sender's at a receiver. */
  readonly strategy?: Strategy | undefined;
  /** A peer that sends nothing for longer, not even a heartbeat, fails the stream. Default 10 s. */
  readonly timeoutMs?: number | undefined;
  /**
   * Protects the control connection only: the bytes of the stream are not encrypted, neither on TCP
   * nor on RDMA.
   */
  readonly tls?: StreamTls | undefined;
  /** Aborts the opening. Once the stream is open, `close` ends it. */
  readonly signal?: AbortSignal | undefined;
}

export interface SenderOptions extends NetworkOptions {
  /** Called with the port that the sender listens on, for those that passed port 0. */
  readonly onListening?: ((port: number) => void) | undefined;
  /** Called when a receiver was refused; the sender goes on listening. */
  readonly onRefused?: ((reason: string) => void) | undefined;
}

export interface ReceiverOptions extends Omit<NetworkOptions, 'blockBytes'> {
  /**
   * The most memory that the pool may take here, since the sender chooses the size of the blocks.
   * Default 1 GiB.
   */
  readonly maxPoolBytes?: number | undefined;
}

export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

export type Sender = Producer;
export type Receiver = Consumer;

/**
 * Listens, and resolves when a receiver has connected and agreed. `sizeBytes` undefined: it is told
 * at `finish`.
 *
 * `done()` resolves when the receiver has read everything. `close()` after `finish()` waits for
 * that; before `finish()` it fails the stream at the receiver.
 */
export async function openSender(
  where: number | ListenAddress,
  sizeBytes: number | undefined,
  options: SenderOptions = {},
): Promise<Sender> {
  const { device, strategy, onListening, onRefused, signal } = options;
  const { host, port } = typeof where === 'number' ? { host: undefined, port: where } : where;
  checkPort(port);
  const common = await commonSettings(options);
  signal?.throwIfAborted();
  const memory = memoryOptions(options);
  await using undo = new AsyncDisposableStack();
  const queue = undo.use(createStreamQueue(sizeBytes, memory));
  const settings = { role: 'sender', host, port, device, strategy, queue: queue.parts, ...common } as const;
  const what = `send a stream on port ${port}`;
  const engine = undo.adopt(new EngineClient(settings, what, { onListening, onRefused }, queue), (it) => it.close());
  await engine.ready(signal);
  undo.move();
  return new Producer(queue, memory, engine);
}

/**
 * Dials, and resolves when the sender has agreed. `done()` resolves when everything has arrived and
 * was read.
 */
export async function openReceiver(host: string, port: number, options: ReceiverOptions = {}): Promise<Receiver> {
  const { device, strategy, signal, maxPoolBytes = DEFAULT_MAX_POOL_BYTES } = options;
  checkPort(port);
  const common = await commonSettings(options);
  signal?.throwIfAborted();
  const memory = memoryOptions(options);
  let queue: BlockQueue | undefined;
  const makeQueue = (blockBytes: number, sizeBytes: number | undefined): BlockQueue => {
    const { poolBlocks } = checkOptions({ ...memory, blockBytes });
    if (blockBytes * poolBlocks > maxPoolBytes) {
      throw new UsageError(
        `the sender has blocks of ${blockBytes} bytes: a pool of ${poolBlocks} would exceed maxPoolBytes (${maxPoolBytes})`,
      );
    }
    queue = createStreamQueue(sizeBytes, { ...memory, blockBytes });
    return queue;
  };
  const settings = { role: 'receiver', host, port, device, strategy, ...common } as const;
  await using undo = new AsyncDisposableStack();
  undo.defer(() => queue?.close());
  const what = `receive a stream from ${host} port ${port}`;
  const engine = undo.adopt(new EngineClient(settings, what, { makeQueue }, undefined), (it) => it.close());
  await engine.ready(signal);
  if (queue === undefined) throw new UsageError(`${what}: the engine is ready and has no queue`);
  undo.move();
  return new Consumer(queue, memory, engine);
}

interface CommonSettings {
  readonly timeoutMs: number;
  readonly security: ControlSecurity;
  readonly peerName: string | undefined;
}

async function commonSettings({
  timeoutMs = DEFAULT_TIMEOUT_MS,
  tls,
  strategy,
}: NetworkOptions): Promise<CommonSettings> {
  if (!Number.isInteger(timeoutMs) || timeoutMs < MIN_TIMEOUT_MS || timeoutMs >= 2 ** 31) {
    throw new UsageError(`timeoutMs ${timeoutMs}: it must be a whole number from ${MIN_TIMEOUT_MS} on`);
  }
  if (strategy !== undefined && !strategies.includes(strategy)) {
    throw new UsageError(`strategy ${String(strategy)}: expected one of ${strategies.join(', ')}`);
  }
  return { timeoutMs, security: await readSecurity(tls), peerName: tls?.peerName };
}

/**
 * Without `timeoutMs`: the heartbeat detects a dead peer, so a page fault of the window may wait
 * for any time.
 */
function memoryOptions(options: NetworkOptions & { readonly blockBytes?: number | undefined }): StreamOptions {
  const { blockBytes, poolBlocks, revisitBlocks, readAheadBlocks, hugePages, maxSizeBytes, clearBlocks } = options;
  return { blockBytes, poolBlocks, revisitBlocks, readAheadBlocks, hugePages, maxSizeBytes, clearBlocks };
}

function checkPort(port: number): void {
  if (Number.isInteger(port) && port >= 0 && port <= 65_535) return;
  throw new UsageError(`port ${port}: it must be a whole number from 0 to 65535`);
}
