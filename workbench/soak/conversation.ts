// One end of a connection: plays its part of the script, and reports how it ended.

import { setTimeout as rest } from 'node:timers/promises';
import { type CheckedSocket, isReset, WrongBytes } from './checked-socket.ts';
import { type Behaviour, decodeHeader, type End, encodeHeader, HEADER_BYTES, type Step, scriptOf } from './script.ts';

/**
 * `exact`: everything went as in the script, to the last byte. `reset`: the connection was reset
 * without a reset in the script; the faults decide whether that is allowed. The others are never
 * allowed.
 */
export type Ending = 'exact' | 'reset' | 'wrong' | 'stuck' | 'failed';

export interface Outcome {
  readonly end: End;
  /** `unknown`: the connection ended before the server had read the header. */
  readonly behaviour: Behaviour | 'unknown';
  readonly seed: number;
  readonly ending: Ending;
  /** The step, and why it ended; '' when exact. */
  readonly detail: string;
  readonly bytes: number;
  /** Date.now() */
  readonly startMs: number;
  readonly endMs: number;
}

/** Nothing moved for too long. */
export class Stuck extends Error {}

export async function call(socket: CheckedSocket, behaviour: Behaviour, seed: number): Promise<Outcome> {
  return ending(socket, 'client', async (progress) => {
    progress.behaviour = behaviour;
    progress.seed = seed;
    // A client that only closes sends nothing.
    if (behaviour !== 'connectAndClose') await socket.sendRaw(encodeHeader(behaviour, seed));
    await play(socket, 'client', progress);
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
  /** The step of the script. */
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
      const { client, server } = step.bytes;
      const [out, incoming] = own === 'client' ? [client, server] : [server, client];
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
      // The server just waits for the next step.
      if (own === 'client') await rest(step.ms);
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
