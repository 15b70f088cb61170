// A leg in all orders of what the program, the kernel, the peer and the lane can do.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { explore } from './fixtures/explore.ts';
import { type LegKind, LegModel, type LegStep, legKinds, legSteps } from './fixtures/leg-model.ts';
import { recordFlags } from './stream-ends.ts';

/** Undefined when one of the steps is not possible. */
function replay(kind: LegKind, history: readonly LegStep[]): LegModel | undefined {
  const model = new LegModel(kind);
  return history.every((step) => model.step(step)) ? model : undefined;
}

/** Steps that come by themselves: the kernel's and the lane's. */
const ownSteps: readonly LegStep[] = ['epoll', 'write record', 'acknowledge'];

/** What is wrong in a state, whatever comes next. */
function problemOf(model: LegModel): string {
  const { ends, socket, records, wrong } = model;
  if (wrong !== '') return wrong;
  if (model.timesFree > 1) return 'the stream id is freed twice';
  for (const flag of Object.values(recordFlags)) {
    if (records.filter((one) => one === flag).length > 1) return `record ${flag} is told twice`;
  }
  if (ends.isShutHere && !socket.hasEnded) return 'a reset is told as an end';
  if (ends.isShutHere && model.carried < model.sentByProgram) return 'an end is told before the last byte';
  if (socket.isSendShut && !socket.isReset && model.delivered < model.sentByPeer) return 'an end overtakes bytes';
  if (socket.closedBy === 'reset' && !ends.isResetHere) return 'a reset of the program is not told';
  if (socket.closedBy === 'end' && !ends.isWhole) return 'a half is closed as if it had ended';
  if (socket.closedBy === 'end' && model.delivered < model.sentByPeer && !socket.isReset) return 'held bytes are lost';
  return '';
}

/** What is missing in a state in which nothing more happens by itself. */
function omissionOf(model: LegModel): string {
  const { ends, leg, socket, held } = model;
  if (leg.isClosed && !model.isAbandoned) {
    if (!ends.isShutHere && !ends.isResetHere) return 'the peer is not told of the end';
    return !ends.mayReceive && model.timesFree !== 1 ? 'the stream id is not freed' : '';
  }
  if (leg.isClosed) return '';
  if (socket.isReset && !leg.isConnecting) return 'a program that was reset is not closed';
  if (held > 0 || socket.isConnecting) return '';
  if (ends.isResetThere && !model.isAbandoned) return 'a stream that the peer has reset is not closed';
  if (ends.isWhole) return 'a stream that both sides have ended is not closed';
  if (socket.hasEnded && model.carried === model.sentByProgram && model.credit > 0 && !ends.isShutHere) {
    return 'an end of the program is not told';
  }
  return model.isAbandoned ? 'an abandoned stream is not closed' : '';
}

/** Lets everything happen that comes by itself. */
function settle(kind: LegKind, history: readonly LegStep[]): LegModel {
  const model = replay(kind, history) ?? assert.fail();
  while (ownSteps.some((step) => model.step(step)));
  model.step('drain');
  while (ownSteps.some((step) => model.step(step)));
  return model;
}

/** Lets the peer and the program end, if they have not. */
function finish(kind: LegKind, history: readonly LegStep[]): LegModel {
  const model = settle(kind, history);
  for (const step of ['accept', 'peer credit', 'program takes', 'peer reset', 'program resets'] as const) {
    model.step(step);
    while (ownSteps.some((own) => model.step(own)));
  }
  while (model.step('drain') && !model.leg.isClosed);
  while (ownSteps.some((own) => model.step(own)));
  return model;
}

interface State {
  readonly history: readonly LegStep[];
  /** After these steps; nobody takes another one with it. */
  readonly model: LegModel;
}

function* after(kind: LegKind, history: readonly LegStep[]): Generator<State> {
  for (const step of legSteps) {
    const longer = [...history, step];
    const model = replay(kind, longer);
    if (model !== undefined) yield { history: longer, model };
  }
}

describe('a leg, in all orders of events,', () => {
  for (const kind of legKinds) {
    test(`${kind}: keeps order, tells every end once, and comes to its end`, () => {
      let closed = 0;
      let problem = '';
      const found = explore<State>({
        initial: { history: [], model: new LegModel(kind) },
        next: ({ history }) => [...after(kind, history)],
        key: ({ model }) => model.describe(),
        isBad: ({ history, model }) => {
          if (model.leg.isClosed) closed++;
          problem = problemOf(model) || omissionOf(settle(kind, history));
          if (problem !== '') return true;
          const last = finish(kind, history);
          if (!last.leg.isClosed || (!last.isAbandoned && last.timesFree !== 1))
            problem = 'it does not come to its end';
          return problem !== '';
        },
      });
      assert.deepEqual([problem, ...(found.trace.at(-1)?.history ?? [])], ['']);
      assert.ok(found.states > 1000 && closed > 100, `${found.states} states, ${closed} of them closed`);
    });
  }
});
