// What the demo measures: over plain TCP, carried, and direct.

import type { Host } from '../../src/lab/index.ts';
import { type RedisFigures, type RedisServer, runRedisBenchmark } from '../worlds/index.ts';
import { fetchOnce, type TransferFigures, type TransferServer } from './transfer.ts';

interface DemoLoad {
  readonly clients: number;
  readonly requests: number;
  readonly payloadBytes: number;
}

export interface DemoFigures {
  readonly redis: readonly RedisFigures[];
  readonly transfer: TransferFigures;
}

export interface DemoServers {
  readonly redis: RedisServer;
  readonly transfer: TransferServer;
}

/** The median of several transfers is shown, because single ones vary a lot. */
const TRANSFERS = 3;

export async function measure(
  client: Host,
  { redis, transfer }: DemoServers,
  load: DemoLoad,
  signal: AbortSignal,
): Promise<DemoFigures> {
  const figures = await runRedisBenchmark(client, redis, { tests: ['set', 'get'], ...load }, signal);
  const transfers: TransferFigures[] = [];
  for (let round = 0; round < TRANSFERS; round++) transfers.push(await fetchOnce(client, transfer, signal));
  transfers.sort((left, right) => left.seconds - right.seconds);
  const [, middle = transfers[0]] = transfers;
  return { redis: figures, transfer: middle as TransferFigures };
}
