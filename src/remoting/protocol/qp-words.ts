// The attributes of a step of the QP state machine as words: a bit for each that is there, then
// their values.

import { UsageError } from '../../errors.ts';
import { type QpAttributes, type QpState, type QpType, qpStates } from '../../verbs/index.ts';
import { readPath, writePath } from './path-words.ts';
import type { WordReader, WordWriter } from './words.ts';

/** The order is part of the protocol. */
const numbers = [
  'portNumber',
  'pkeyIndex',
  'access',
  'qkey',
  'pathMtu',
  'destQpNumber',
  'rqPsn',
  'sqPsn',
  'maxDestRdAtomic',
  'maxRdAtomic',
  'minRnrTimer',
  'timeout',
  'retryCount',
  'rnrRetry',
] as const;
const PATH = 1 << numbers.length;

const types: readonly QpType[] = ['RC', 'UD'];

export function writeQpAttributes(writer: WordWriter, attributes: QpAttributes): void {
  const given = numbers.filter((name) => attributes[name] !== undefined);
  const bits = given.reduce(
    (sum, name) => sum | (1 << numbers.indexOf(name)),
    attributes.path === undefined ? 0 : PATH,
  );
  writer.u32(bits);
  for (const name of given) writer.u32(attributes[name] ?? 0);
  if (attributes.path !== undefined) writePath(writer, attributes.path);
}

/** Values are not checked here: `Qp.modify` checks them. */
export function readQpAttributes(reader: WordReader): QpAttributes {
  const bits = reader.u32();
  const given = numbers.filter((_, index) => (bits & (1 << index)) !== 0).map((name) => [name, reader.u32()]);
  const path = (bits & PATH) === 0 ? {} : { path: readPath(reader) };
  return { ...(Object.fromEntries(given) as QpAttributes), ...path };
}

export function stateWord(state: QpState): number {
  return qpStates.indexOf(state);
}

export function stateOf(word: number): QpState {
  const state = qpStates[word];
  if (state === undefined) throw new UsageError(`QP state ${word}: there are ${qpStates.length}`);
  return state;
}

export function typeWord(type: QpType): number {
  return types.indexOf(type);
}

export function typeOf(word: number): QpType {
  const type = types[word];
  if (type === undefined) throw new UsageError(`QP type ${word}: there are ${types.length}`);
  return type;
}
