// One end of a connection: plays its part of the script, and says how it ended.

import { setTimeout as rest } from 'node:timers/promises';
import { type CheckedSocket, isReset, WrongBytes } from './checked-socket.ts';
import { type Behaviour, decodeHeader, type End, encodeHeader, HEADER_BYTES, type Step, scriptOf } from './script.ts';

/**
 * `exact`: all that the script says, to the last byte. `reset`: the connection was reset where the script has no reset; whether that
 * may be, the plan of faults says. The others may never be.
 */
export type Ending = 'exact' | 'reset' | 'wrong' | 'stuck' | 'failed';

export interface Outcome {
  readonly end: End;
  /** `unknown`: it ended before the server learned what was meant. */
  readonly behaviour: Behaviour | 'unknown';
  readonly seed: number;
  readonly ending: Ending;
  /** Where it stood, and why it ended; '' when exact. */
  readonly detail: string;
  readonly bytes: number;
  /** Date.now() */
  readonly startMs: number;
  readonly endMs: number;
}

/** Nothing moved for too long. */
export class Stuck extends Error {}

export async function call(socket: CheckedSocket, behaviour: Behaviour, seed: number): Promise<Outcome> {
  return ending(socket, 'caller', async (progress) => {
    progress.behaviour = behaviour;
    progress.seed = seed;
    // A caller that only closes says nothing at all.
    if (behaviour !== 'connectAndClose') await socket.sendRaw(encodeHeader(behaviour, seed));
    await play(socket, 'caller', progress);
  });
}

export async function serve(socket: CheckedSocket): Promise<Outcome> {
  return ending(socket, 'server', async (progress) => {
    const header = await socket.receiveRaw(HEADER_BYTES);
    if (header === null) {
      progress.behaviour = 'connectAndClose';
      await socket.shut();
      return;
    }
    const asked = decodeHeader(header);
    if (asked === null) throw new WrongBytes(`the header is ${header.toString('hex')}`);
    progress.behaviour = asked.behaviour;
    progress.seed = asked.seed;
    await play(socket, 'server', progress);
  });
}

interface Progress {
  behaviour: Outcome['behaviour'];
  seed: number;
  /** Of the script. */
  step: string;
}

async function play(socket: CheckedSocket, own: End, progress: Progress): Promise<void> {
  const { behaviour, seed } = progress;
  if (behaviour === 'unknown') return;
  socket.begin(seed, own);
  const steps = scriptOf(behaviour, seed);
  for (const [index, step] of steps.entries()) {
    progress.step = `step ${index + 1} of ${steps.length}, ${step.what}${'by' in step ? ` by ${step.by}` : ''}`;
    await playStep(socket, own, step);
  }
}

async function playStep(socket: CheckedSocket, own: End, step: Step): Promise<void> {
  switch (step.what) {
    case 'send':
      await (step.by === own ? socket.send(step.bytes) : socket.receive(step.bytes, step.paceMs));
      break;
    case 'exchange': {
      const { caller, server } = step.bytes;
      const [out, incoming] = own === 'caller' ? [caller, server] : [server, caller];
      await Promise.all([socket.send(out), socket.receive(incoming)]);
      break;
    }
    case 'shut':
      await (step.by === own ? socket.shut() : socket.ended());
      break;
    case 'reset':
      if (step.by === own) {
        await socket.send(step.bytes);
        socket.reset();
      } else {
        await socket.wasReset(step.bytes);
      }
      break;
    case 'abort':
      if (step.by === own) {
        await socket.receive(step.partBytes);
        socket.reset();
      } else {
        await socket.wasCutOff(step.bytes);
      }
      break;
    case 'rest':
      // The server just waits for what comes then.
      if (own === 'caller') await rest(step.ms);
      break;
  }
}

async function ending(socket: CheckedSocket, end: End, play: (progress: Progress) => Promise<void>): Promise<Outcome> {
  const startMs = Date.now();
  const progress: Progress = { behaviour: 'unknown', seed: 0, step: 'the header' };
  const outcome = (kind: Ending, detail: string): Outcome => {
    const { behaviour, seed } = progress;
    return { end, behaviour, seed, ending: kind, detail, bytes: socket.movedBytes, startMs, endMs: Date.now() };
  };
  try {
    await play(progress);
    return outcome('exact', '');
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    const detail = `${progress.step}, ${socket.movedBytes} bytes moved: ${message}`;
    if (error instanceof WrongBytes) return outcome('wrong', detail);
    if (error instanceof Stuck) return outcome('stuck', detail);
    return outcome(isReset(error) ? 'reset' : 'failed', detail);
  } finally {
    socket.close();
  }
}
