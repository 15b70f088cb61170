// Rows remoting.*: verbs of a guest process through the backend, next to the same loops on a device
// of its own.

import { type ChildProcess, fork } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { WaitMode } from '../../src/spin/index.ts';
import { figureOf, stopProcess } from './figure-process.ts';
import { median } from './measure.ts';
import type { LoopOrder } from './remoting-loops.ts';
import type { ProgramOptions } from './remoting-program.ts';
import { type Contest, longEnough, type Row } from './row.ts';

const KIB = 1024;
/**
 * The sizes of the bandwidth experiments in the paper on para-virtualization by API remoting
 * (docs/remoting.md).
 */
const bulkSizes = [512, 1024, 2048, 4096, 8192].map((kib) => kib * KIB);
/** The size of a guest's source and of the peer's target: more than the caches have. */
const REGION_BYTES = 64 * 1024 * KIB;
/**
 * Both devices take turns within a round, so that disturbances of the machine affect both alike;
 * the median of the turns counts.
 */
const TURNS = 5;
/** The shortest round of rows with large transfers, so that each size has enough time in a turn. */
const LEAST_BULK_MS = 2000;

const WARM_MS = 2000;

type Loop = Omit<LoopOrder, 'where' | 'ms'>;
type Place = LoopOrder['where'];

class RemotingWorld implements AsyncDisposable {
  readonly #resources: AsyncDisposableStack;
  readonly #guests: readonly ChildProcess[];

  static async start(guests: number, wait: WaitMode, signal: AbortSignal): Promise<RemotingWorld> {
    await using undo = new AsyncDisposableStack();
    const folder = undo.adopt(mkdtempSync(join(tmpdir(), 'millrace-bench-')), (path) =>
      rmSync(path, { recursive: true, force: true }),
    );
    const begin = async (options: Omit<ProgramOptions, 'folder' | 'sizeBytes'>): Promise<ChildProcess> => {
      const child = undo.adopt(start({ ...options, folder, sizeBytes: REGION_BYTES }), stopProcess);
      await figureOf(child, signal);
      return child;
    };
    await begin({ role: 'peer' });
    await begin({ role: 'backend', wait });
    const children: ChildProcess[] = [];
    for (let index = 0; index < guests; index++) children.push(await begin({ role: 'guest', wait }));
    return new RemotingWorld(undo.move(), children);
  }

  private constructor(resources: AsyncDisposableStack, guests: readonly ChildProcess[]) {
    this.#resources = resources;
    this.#guests = guests;
  }

  /** The ns per operation of each guest, all measured at the same time. */
  async run(where: Place, loop: Loop, ms: number, signal: AbortSignal): Promise<readonly number[]> {
    const order: LoopOrder = { where, ms, ...loop };
    return Promise.all(
      this.#guests.map((guest) => {
        guest.send(order);
        return figureOf(guest, signal);
      }),
    );
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#resources.disposeAsync();
  }
}

function start(options: ProgramOptions): ChildProcess {
  const file = new URL('remoting-program.ts', import.meta.url);
  return fork(file, [JSON.stringify(options)]);
}

interface RemotingRow extends Omit<Row, 'prepare'> {
  readonly loop: Loop;
  /** Computes the row's figure from the ns per operation of each guest. */
  readonly figure: (ns: readonly number[]) => number;
  readonly guests?: number;
  readonly wait?: WaitMode;
  /**
   * `added`: what remoting adds, in the row's unit; `alone`: remoted only; else native is the
   * rival.
   */
  readonly compared?: 'added' | 'alone';
  /** The shortest round. */
  readonly leastMs?: number;
}

function remotingRow({ loop, figure, guests = 1, wait = 'mixed', compared, leastMs = 0, ...row }: RemotingRow): Row {
  const prepare: Row['prepare'] = async ({ roundMs, signal }) => {
    const world = await RemotingWorld.start(guests, wait, signal);
    const ms = longEnough(roundMs, leastMs);
    const measure = async (where: Place, forMs: number): Promise<number> =>
      figure(await world.run(where, loop, forMs, signal));
    const takeTurns = async (): Promise<Record<Place, number>> => {
      const figures: Record<Place, number[]> = { remoted: [], native: [] };
      for (let turn = 0; turn < TURNS; turn++) {
        for (const where of ['remoted', 'native'] as const) figures[where].push(await measure(where, ms / TURNS / 2));
      }
      return { remoted: median(figures.remoted), native: median(figures.native) };
    };
    const added = async (): Promise<number> => {
      const { remoted, native } = await takeTurns();
      return Math.max(0, remoted - native);
    };
    let round: Partial<Record<Place, number>> = {};
    /** The entrant that is called first in a round measures for both. */
    const entrant = (where: Place) => async (): Promise<number> => {
      round = where in round ? round : await takeTurns();
      const { [where]: mine = Number.NaN, ...others } = round;
      round = others;
      return mine;
    };
    const contest: Contest = {
      ours: { added, alone: () => measure('remoted', ms), native: entrant('remoted') }[compared ?? 'native'],
      against: compared === undefined ? { native: entrant('native') } : {},
      [Symbol.asyncDispose]: () => world[Symbol.asyncDispose](),
    };
    // Runs without measuring, so that V8 has compiled the loops, on the measured processor, and all
    // pages are mapped.
    const warmMs = performance.now() + longEnough(roundMs, WARM_MS);
    do for (const run of [contest.ours, ...Object.values(contest.against)]) await run(signal);
    while (performance.now() < warmMs);
    return contest;
  };
  return { ...row, prepare };
}

const inUs = ([ns]: readonly number[]): number => ns / 1000;
/**
 * The MiB/s of all guests together, for operations of `bytes` each (the geometric mean of the
 * sizes).
 */
const mibPerS =
  (bytes: number) =>
  (each: readonly number[]): number =>
    each.reduce((sum, ns) => sum + (bytes * 1e9) / ns / 1024 ** 2, 0);

const write = (sizes: readonly number[], batch = 1): Loop => ({ kind: 'write', sizes, batch });
const meanBulk = bulkSizes.reduce((product, size) => product * size ** (1 / bulkSizes.length), 1);

export const remotingRows: readonly Row[] = [
  remotingRow({
    id: 'remoting.post',
    what: 'added to a 64 B write that is posted alone and polled for',
    unit: 'us',
    better: 'lower',
    threshold: 3,
    goal: 0.3,
    loop: write([64]),
    figure: inUs,
    compared: 'added',
  }),
  remotingRow({
    id: 'remoting.post.batch',
    what: 'added to each of 64 writes of 64 B that are posted at once and polled for',
    unit: 'us',
    better: 'lower',
    loop: write([64], 64),
    figure: inUs,
    compared: 'added',
  }),
  remotingRow({
    id: 'remoting.bw.single',
    what: 'writes of 512 KiB to 8 MiB, one at a time',
    unit: 'MiB/s',
    better: 'higher',
    threshold: { native: 0.93 },
    goal: { native: 0.99 },
    loop: write(bulkSizes),
    figure: mibPerS(meanBulk),
    leastMs: LEAST_BULK_MS,
  }),
  remotingRow({
    id: 'remoting.bw.burst',
    what: 'bursts of 32 writes of 512 KiB to 8 MiB',
    unit: 'MiB/s',
    better: 'higher',
    threshold: { native: 0.96 },
    goal: { native: 0.99 },
    loop: write(bulkSizes, 32),
    figure: mibPerS(meanBulk),
    leastMs: LEAST_BULK_MS,
  }),
  remotingRow({
    id: 'remoting.event',
    what: "from the peer's post of a message to the guest's callback, wire included, median",
    unit: 'us',
    better: 'lower',
    threshold: 100,
    goal: 15,
    loop: { kind: 'event', sizes: [8], batch: 1 },
    figure: inUs,
    compared: 'alone',
  }),
  remotingRow({
    id: 'remoting.alloc',
    what: 'a region of 512 KiB to 8 MiB allocated and freed',
    unit: 'us',
    better: 'lower',
    loop: { kind: 'allocate', sizes: bulkSizes, batch: 1 },
    figure: inUs,
  }),
  ...(['mixed', 'spin', 'event'] as const).map((wait) =>
    remotingRow({
      id: `remoting.call.${wait}`,
      what: `a call to the backend and back, waiting by ${wait}`,
      unit: 'us',
      better: 'lower',
      loop: { kind: 'call', sizes: [1], batch: 1 },
      figure: inUs,
      wait,
      compared: 'alone',
    }),
  ),
  ...([4, 16 * KIB] as const).map((bytes) =>
    remotingRow({
      id: `remoting.lat.${bytes}`,
      what: `a write of ${bytes} B, posted alone and polled for`,
      unit: 'us',
      better: 'lower',
      loop: write([bytes]),
      figure: inUs,
    }),
  ),
  ...([1, 64 * KIB] as const).map((bytes) =>
    remotingRow({
      id: `remoting.rate.${bytes}`,
      what: `writes of ${bytes} B in batches of 64`,
      unit: 'MiB/s',
      better: 'higher',
      loop: write([bytes], 64),
      figure: mibPerS(bytes),
    }),
  ),
  ...([1, 2, 8] as const).map((guests) =>
    remotingRow({
      id: `remoting.guests.${guests}`,
      what: `writes of 64 KiB in batches of 8 by ${guests} guests, all together`,
      unit: 'MiB/s',
      better: 'higher',
      loop: write([64 * KIB], 8),
      figure: mibPerS(64 * KIB),
      guests,
    }),
  ),
];
