// No wake-up is lost in any interleaving of the two sides, and a model that leaves out one step
// loses one.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { SharedMemory } from '../native/index.ts';
import {
  type CoherentState,
  coherentStart,
  coherentWorld,
  omissions,
  SLOTS,
  stepReader,
  stepWriter,
} from './fixtures/coherent-model.ts';
import { explore } from './fixtures/explore.ts';
import { type WireOmission, WireRun, type WireStep, wireOmissions } from './fixtures/wire-run.ts';
import { IncomingRing } from './incoming-ring.ts';
import { CoherentNotifier } from './notifier.ts';
import { OutgoingRing } from './outgoing-ring.ts';
import { recordKinds } from './record-layout.ts';
import { CONTROL_WORDS, controlOffset, controlWords, readerModes, regionBytes } from './region-layout.ts';

const { readPosition, readerMode, writerWaits } = controlWords;
const geometry = { slotBytes: 64, slots: SLOTS, maxRecordSlots: 2 };

/** A notifier for the reader of ring 0 and one for its writer, with the memory of both. */
class Coherent implements Disposable {
  readonly #writerMemory = SharedMemory.create({ sizeBytes: regionBytes(geometry) });
  readonly #readerMemory = SharedMemory.create({ sizeBytes: regionBytes(geometry) });
  readonly outgoing = new OutgoingRing(geometry, 0, this.#writerMemory);
  readonly writer: CoherentNotifier;
  readonly reader: CoherentNotifier;
  /** Control words of ring 0: those that its writer loads, and those that its reader loads. */
  readonly atWriter = words(this.#writerMemory, 0);
  readonly atReader = words(this.#readerMemory, 0);

  constructor() {
    const [writer, reader] = [this.#writerMemory, this.#readerMemory];
    this.outgoing.moveTo(reader);
    this.writer = new CoherentNotifier(new IncomingRing(geometry, 1, writer), this.outgoing, {
      ownOutgoing: words(writer, 0),
      ownIncoming: words(writer, 1),
      peerOutgoing: words(reader, 0),
      peerIncoming: words(reader, 1),
    });
    this.reader = new CoherentNotifier(new IncomingRing(geometry, 0, reader), new OutgoingRing(geometry, 1, reader), {
      ownOutgoing: words(reader, 1),
      ownIncoming: words(reader, 0),
      peerOutgoing: words(writer, 1),
      peerIncoming: words(writer, 0),
    });
  }

  [Symbol.dispose](): void {
    this.#writerMemory.close();
    this.#readerMemory.close();
  }
}

function words(memory: SharedMemory, ring: 0 | 1): Uint32Array {
  return new Uint32Array(memory.buffer, controlOffset(ring), CONTROL_WORDS);
}

/** The state after all steps of one side until it is at one of these. */
function run(
  from: CoherentState,
  step: (state: CoherentState) => CoherentState | undefined,
  isThere: (state: CoherentState) => boolean,
): CoherentState {
  let state = from;
  while (!isThere(state)) state = step(state) ?? assert.fail('it sleeps');
  return state;
}

describe('sleeping in shared memory', () => {
  for (const omission of omissions) {
    test(`without '${omission}' the model finds a sleeper that nobody wakes`, () => {
      const { trace } = explore(coherentWorld(SLOTS + 2, omission));
      assert.ok(trace.length > 0);
    });
  }

  test('no interleaving leaves a reader asleep with records, or a writer asleep with room', () => {
    const { states, trace } = explore(coherentWorld(SLOTS + 5));
    assert.deepEqual(trace, []);
    assert.ok(states > 50_000, `only ${states} states`);
  });

  test('the class does what the model does: a reader that wants to sleep', () => {
    for (const hasRecord of [false, true]) {
      using real = new Coherent();
      if (hasRecord) real.outgoing.commit(recordKinds.ping, 0, 0);
      const start: CoherentState = { ...coherentStart, readerAt: 'store sleeps', written: hasRecord ? 1 : 0 };
      const end = run(
        start,
        (state) => stepReader(state, ''),
        ({ readerAt }) => readerAt === 'asleep' || readerAt === 'read',
      );
      assert.equal(real.reader.prepareSleep(), end.readerAt === 'asleep');
      assert.equal(real.atWriter[readerMode] === readerModes.sleeps, end.sleeps);
    }
  });

  test('the class does what the model does: a reader that was woken', () => {
    for (const sleeps of [false, true]) {
      using real = new Coherent();
      real.atWriter[readerMode] = sleeps ? readerModes.sleeps : readerModes.polls;
      const end = run(
        { ...coherentStart, sleeps, readerAt: 'awake' },
        (state) => stepReader(state, ''),
        ({ readerAt }) => readerAt === 'publish',
      );
      real.reader.awake();
      assert.equal(real.atWriter[readerMode] === readerModes.sleeps, end.sleeps);
    }
  });

  test('the class does what the model does: a writer that has written, whatever stands in the word', () => {
    for (const mode of [readerModes.events, readerModes.polls, readerModes.sleeps, 77]) {
      using real = new Coherent();
      real.atWriter[readerMode] = mode;
      const sleeps = mode === readerModes.sleeps;
      const start: CoherentState = { ...coherentStart, sleeps, written: 1, writerAt: 'load sleeps' };
      const end = run(
        start,
        (state) => stepWriter(state, 1, ''),
        ({ writerAt }) => writerAt === 'write',
      );
      assert.equal(real.writer.mustNotify(), end.toReader);
      assert.equal(real.atWriter[readerMode] === readerModes.sleeps, end.sleeps);
      // Once, however much is written.
      assert.equal(real.writer.mustNotify(), false);
    }
  });

  test('the class does what the model does: a writer that waits for room', () => {
    for (const index of [0, 4]) {
      using real = new Coherent();
      for (let count = 0; count < SLOTS; count++) real.outgoing.commit(recordKinds.ping, 0, 0);
      real.atWriter[readPosition] = index;
      const start: CoherentState = { ...coherentStart, written: SLOTS, index, writerAt: 'store waits' };
      const end = run(
        start,
        (state) => stepWriter(state, SLOTS, ''),
        ({ writerAt }) => writerAt === 'asleep' || writerAt === 'write',
      );
      assert.equal(real.writer.prepareRoomWait(), end.writerAt === 'asleep');
      assert.equal(real.atReader[writerWaits] !== 0, end.waits);
    }
  });

  test('the class does what the model does: a reader that has told its index', () => {
    for (const waits of [false, true]) {
      using real = new Coherent();
      real.atReader[writerWaits] = waits ? 1 : 0;
      assert.equal(real.reader.isRoomWanted, waits);
      const start: CoherentState = { ...coherentStart, waits, isBusy: true, readerAt: 'load waits' };
      const end = run(
        start,
        (state) => stepReader(state, ''),
        ({ readerAt }) => readerAt === 'read',
      );
      assert.equal(real.reader.mustNotifyRoom(), end.toWriter);
      assert.equal(real.atReader[writerWaits] !== 0, end.waits);
    }
  });
});

interface WireState {
  readonly steps: readonly WireStep[];
  readonly key: string;
  readonly possible: readonly WireStep[];
  readonly isStuck: boolean;
}

/** All that can happen with so many records; the real classes are driven. */
function exploreWire(records: number, omission: WireOmission = ''): { states: number; trace: readonly WireState[] } {
  const reach = (steps: readonly WireStep[]): WireState => {
    const { key, possible, isStuck } = new WireRun(records, omission, steps);
    return { steps, key, possible, isStuck };
  };
  return explore({
    initial: reach([]),
    next: ({ steps, possible }) => possible.map((step) => reach([...steps, step])),
    key: ({ key }) => key,
    isBad: ({ isStuck }) => isStuck,
  });
}

describe('sleeping across a wire', () => {
  for (const omission of wireOmissions) {
    test(`without '${omission}' a sleeper is found that nobody wakes`, () => {
      assert.ok(exploreWire(4, omission).trace.length > 0);
    });
  }

  test('no order in which messages arrive leaves a reader asleep with records', () => {
    const { states, trace } = exploreWire(5);
    assert.deepEqual(trace.at(-1)?.steps ?? [], []);
    assert.ok(states > 5000, `only ${states} states`);
  });
});
