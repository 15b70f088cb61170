// The QP state machine: which steps are allowed, and which attributes each step needs and takes. As
// in the InfiniBand specification, table "QP state transition properties".

import { UsageError } from '../errors.ts';
import { accessProblem } from './access.ts';
import { type Gid, gidBytes } from './gid.ts';

export const qpStates = ['RESET', 'INIT', 'RTR', 'RTS', 'SQD', 'SQE', 'ERR'] as const;
export type QpState = (typeof qpStates)[number];
export type QpType = 'RC' | 'UD';

/** The path to the peer. */
export interface PathTo {
  readonly gid: Gid;
  readonly lid?: number;
  /** Which of this side's GIDs to send from. Default: one that fits the peer's. */
  readonly gidIndex?: number;
  readonly hopLimit?: number;
}

export type Mtu = 256 | 512 | 1024 | 2048 | 4096;

export interface QpAttributes {
  readonly portNumber?: number;
  readonly pkeyIndex?: number;
  /** What the peer may do through this QP; its regions must allow it as well. */
  readonly access?: number;
  readonly qkey?: number;
  readonly path?: PathTo;
  readonly pathMtu?: Mtu;
  readonly destQpNumber?: number;
  readonly rqPsn?: number;
  readonly sqPsn?: number;
  /** Reads and atomics the peer may have under way here. */
  readonly maxDestRdAtomic?: number;
  /** Reads and atomics that this side may have under way at the peer. */
  readonly maxRdAtomic?: number;
  /**
   * How long a peer that finds no receive here shall wait: 5-bit code, 0 is the longest (655 ms), 1
   * the shortest (10 us).
   */
  readonly minRnrTimer?: number;
  /** Time without an answer before a retry: 4.096 us times 2 to this; 0 is for ever. */
  readonly timeout?: number;
  readonly retryCount?: number;
  /** 7 is for ever. */
  readonly rnrRetry?: number;
}

type AttributeName = keyof QpAttributes;

interface Step {
  readonly required: readonly AttributeName[];
  readonly optional: readonly AttributeName[];
}

const anything: Step = { required: [], optional: [] };
const inRts: Step = { required: [], optional: ['access', 'minRnrTimer', 'qkey'] };

const rcSteps: Readonly<Record<string, Step>> = {
  'RESET INIT': { required: ['portNumber', 'access'], optional: ['pkeyIndex'] },
  'INIT INIT': { required: [], optional: ['portNumber', 'access', 'pkeyIndex'] },
  'INIT RTR': {
    required: ['path', 'pathMtu', 'destQpNumber', 'rqPsn', 'maxDestRdAtomic', 'minRnrTimer'],
    optional: ['access', 'pkeyIndex'],
  },
  'RTR RTS': {
    required: ['sqPsn', 'timeout', 'retryCount', 'rnrRetry', 'maxRdAtomic'],
    optional: ['access', 'minRnrTimer'],
  },
  'RTS RTS': inRts,
  'RTS SQD': anything,
  'SQD SQD': { required: [], optional: ['access', 'minRnrTimer', 'timeout', 'retryCount', 'rnrRetry'] },
  'SQD RTS': inRts,
};

const udSteps: Readonly<Record<string, Step>> = {
  'RESET INIT': { required: ['portNumber', 'qkey'], optional: ['pkeyIndex'] },
  'INIT INIT': { required: [], optional: ['portNumber', 'qkey', 'pkeyIndex'] },
  'INIT RTR': { required: [], optional: ['qkey', 'pkeyIndex'] },
  'RTR RTS': { required: ['sqPsn'], optional: ['qkey'] },
  'RTS RTS': inRts,
  'RTS SQD': anything,
  'SQD SQD': { required: [], optional: ['qkey'] },
  'SQD RTS': inRts,
  'SQE RTS': inRts,
};

/**
 * Throws when the step is not allowed, or an attribute is missing, not for this step, or out of
 * range.
 */
export function checkStep(type: QpType, from: QpState, to: QpState, attributes: QpAttributes): void {
  const attempt = `QP from ${from} to ${to}`;
  const step = findStep(type, from, to);
  if (step === undefined) throw new UsageError(`${attempt}: there is no such step (${type})`);
  const given = Object.keys(attributes).filter((name) => attributes[name as AttributeName] !== undefined);
  const missing = step.required.filter((name) => !given.includes(name));
  if (missing.length > 0) throw new UsageError(`${attempt}: ${missing.join(', ')} must be given`);
  const known: readonly string[] = [...step.required, ...step.optional];
  const odd = given.filter((name) => !known.includes(name));
  if (odd.length > 0) throw new UsageError(`${attempt}: ${odd.join(', ')} cannot be given here`);
  for (const name of given) checkValue(attempt, name as AttributeName, attributes);
}

/** Throws when the path is invalid. */
export function checkPath(attempt: string, { gid, lid = 0, gidIndex = 0, hopLimit = 1 }: PathTo): void {
  gidBytes(gid);
  for (const [name, value, max] of [
    ['lid', lid, 0xffff],
    ['gidIndex', gidIndex, 0xff],
    ['hopLimit', hopLimit, 0xff],
  ] as const) {
    const isInside = Number.isInteger(value) && value >= 0 && value <= max;
    if (!isInside) throw new UsageError(`${attempt}: ${name} of the path is ${value}; expected 0 to ${max}`);
  }
}

function findStep(type: QpType, from: QpState, to: QpState): Step | undefined {
  if (to === 'RESET') return anything;
  if (to === 'ERR') return from === 'RESET' ? undefined : anything;
  return (type === 'RC' ? rcSteps : udSteps)[`${from} ${to}`];
}

const ranges: Readonly<Partial<Record<AttributeName, readonly [min: number, max: number]>>> = {
  portNumber: [1, 255],
  pkeyIndex: [0, 65_535],
  qkey: [0, 0xffff_ffff],
  destQpNumber: [0, 0xff_ffff],
  rqPsn: [0, 0xff_ffff],
  sqPsn: [0, 0xff_ffff],
  maxDestRdAtomic: [0, 128],
  maxRdAtomic: [0, 128],
  minRnrTimer: [0, 31],
  timeout: [0, 31],
  retryCount: [0, 7],
  rnrRetry: [0, 7],
};

const mtus: readonly number[] = [256, 512, 1024, 2048, 4096];

function checkValue(attempt: string, name: AttributeName, attributes: QpAttributes): void {
  const range = ranges[name];
  const value = attributes[name];
  if (range !== undefined) {
    const number = typeof value === 'number' ? value : Number.NaN;
    const isInside = Number.isInteger(number) && number >= range[0] && number <= range[1];
    if (!isInside) throw new UsageError(`${attempt}: ${name} is ${number}; expected ${range[0]} to ${range[1]}`);
  } else if (name === 'access') {
    const problem = accessProblem((attributes.access ?? 0) | 1);
    if (problem !== undefined) throw new UsageError(`${attempt}: ${problem}`);
  } else if (name === 'path' && attributes.path !== undefined) {
    checkPath(attempt, attributes.path);
  } else if (name === 'pathMtu' && !mtus.includes(attributes.pathMtu ?? 0)) {
    throw new UsageError(`${attempt}: pathMtu is ${attributes.pathMtu}; expected one of ${mtus.join(', ')}`);
  }
}
