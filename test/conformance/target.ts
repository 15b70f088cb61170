// What the conformance suite is run against: how to get two devices that reach each other, and what they cannot do.

import { test } from 'node:test';
import type { Device } from '../../src/verbs/index.ts';
import { Rig, type RigOptions } from './rig.ts';

export interface DevicePair extends AsyncDisposable {
  readonly left: Device;
  readonly right: Device;
}

/** Parts of the model that a correct provider may lack. */
export type Feature =
  | 'atomics'
  /** A queue holds exactly as many requests as were asked for. */
  | 'exactQueues'
  | 'cqOverrun'
  | 'srq'
  | 'srqLimit'
  /** A QP that dies is announced by an event. */
  | 'qpFatal'
  /** The responder's QP goes to ERR as well when it refuses a request. */
  | 'responderDies'
  | 'grants'
  | 'solicited'
  | 'sendQueueDrain'
  | 'bigMessages'
  /** A peer that never was, or is gone, is noticed. */
  | 'retryExceeded';

export interface ConformanceTarget {
  readonly name: string;
  open(): Promise<DevicePair>;
  /** Which of port 1's GIDs reaches the other device. */
  readonly gidIndex?: number;
  /** What it cannot do, each with the reason, which is printed with the skipped tests. */
  readonly lacks?: Readonly<Partial<Record<Feature, string>>>;
}

export interface Requirements extends RigOptions {
  readonly needs?: Feature;
}

/** A test on a fresh pair of devices with a QP at each end. */
export function conforms(
  target: ConformanceTarget,
  name: string,
  requirements: Requirements,
  body: (rig: Rig) => Promise<void> | void,
): void {
  const { needs, ...options } = requirements;
  const skip = needs === undefined ? undefined : target.lacks?.[needs];
  test(name, { timeout: 30_000, ...(skip !== undefined && { skip }) }, async () => {
    await using pair = await target.open();
    using rig = Rig.build(pair, { gidIndex: target.gidIndex ?? 0, ...options });
    await body(rig);
  });
}
