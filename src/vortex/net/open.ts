// Opening the two ends of a stream between hosts.

import { readFile } from 'node:fs/promises';
import { UsageError } from '../../errors.ts';
import { type ControlSecurity, checkSecurity } from '../../tls/index.ts';
import type { BlockQueue } from '../stream/index.ts';
import { Consumer, checkOptions, createStreamQueue, Producer, type StreamOptions } from '../stream/index.ts';
import { EngineClient } from './engine-client.ts';
import { type Strategy, strategies } from './protocol.ts';

const DEFAULT_TIMEOUT_MS = 10_000;
const MIN_TIMEOUT_MS = 100;
const DEFAULT_MAX_POOL_BYTES = 2 ** 30;

/** Paths of PEM files, as in the proxy's `tls`. Both sides show a certificate of the same authority. */
export interface StreamTls {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  /** The name that the other side's certificate must have. Default: any of that authority. */
  readonly peerName?: string | undefined;
}

export interface NetworkOptions extends Omit<StreamOptions, 'timeoutMs'> {
  /** An RDMA device (`soft-shm`, `soft-roce`, `soft-tcp`, `mlx5_0`). Default: plain TCP at a sender; whatever the sender has at a receiver. */
  readonly device?: string | undefined;
  /** On RDMA. Default `pool` at a sender; whatever the sender has at a receiver. */
  readonly strategy?: Strategy | undefined;
  /** A peer from which nothing comes for so long, not even a heartbeat, fails the stream. Default 10 s. */
  readonly timeoutMs?: number | undefined;
  /** For the control connection alone: the bytes of the stream are not encrypted, as on RDMA. */
  readonly tls?: StreamTls | undefined;
  /** Gives up waiting for the other side. Once both have come to terms, `close` ends the stream. */
  readonly signal?: AbortSignal | undefined;
}

export interface SenderOptions extends NetworkOptions {
  /** Where receivers can call: of use when the port was 0. */
  readonly onListening?: ((port: number) => void) | undefined;
  /** A caller did not fit and was sent away; the sender waits on. */
  readonly onRefused?: ((reason: string) => void) | undefined;
}

export interface ReceiverOptions extends Omit<NetworkOptions, 'blockBytes'> {
  /** The most memory that a sender can make this side use; it chooses the block's size. Default 1 GiB. */
  readonly maxPoolBytes?: number | undefined;
}

export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

export type Sender = Producer;
export type Receiver = Consumer;

/**
 * Listens, and resolves when a receiver has come and agreed. `sizeBytes` undefined: it is said at `finish`.
 *
 * `done()` resolves when the receiver has read everything. `close()` after `finish()` waits for that; before, the
 * receiver's stream fails.
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
  return new Producer(queue, { ...memory, peer: engine.lifeFd }, engine);
}

/** Resolves when the sender has agreed. `done()` resolves when everything has come and was read. */
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
        `the sender has blocks of ${blockBytes} bytes, and ${poolBlocks} of them are more than maxPoolBytes (${maxPoolBytes})`,
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
  if (queue === undefined) throw new UsageError(`${what}: the engine is ready without a queue`);
  undo.move();
  return new Consumer(queue, { ...memory, peer: engine.lifeFd }, engine);
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
  return { timeoutMs, security: await securityOf(tls), peerName: tls?.peerName };
}

async function securityOf(tls: StreamTls | undefined): Promise<ControlSecurity> {
  if (tls === undefined) return { kind: 'insecure' };
  const [ca = '', cert = '', key = ''] = await Promise.all(
    [tls.ca, tls.cert, tls.key].map(async (path) => {
      try {
        return await readFile(path, 'utf8');
      } catch (error) {
        throw new UsageError(`read ${path} for the TLS of a stream: ${(error as NodeJS.ErrnoException).code}`, {
          cause: error,
        });
      }
    }),
  );
  const security = { kind: 'tls', ca, cert, key } as const;
  checkSecurity(security);
  return security;
}

/** The heartbeat watches over the peer: a touch of the window waits as long as it takes. */
function memoryOptions(options: NetworkOptions & { readonly blockBytes?: number | undefined }): StreamOptions {
  const { blockBytes, poolBlocks, revisitBlocks, readAheadBlocks, hugePages, maxSizeBytes, clearBlocks } = options;
  return { blockBytes, poolBlocks, revisitBlocks, readAheadBlocks, hugePages, maxSizeBytes, clearBlocks };
}

function checkPort(port: number): void {
  if (Number.isInteger(port) && port >= 0 && port <= 65_535) return;
  throw new UsageError(`port ${port}: it must be a whole number from 0 to 65535`);
}
