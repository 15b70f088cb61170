// What the conformance suite is run against: how to get two devices that reach each other, and what
// they cannot do.

import { test } from 'node:test';
import type { Device } from '../../src/verbs/index.ts';
import type { GidOf } from './connect.ts';
import { Rig, type RigOptions } from './rig.ts';

export interface DevicePair extends AsyncDisposable {
  readonly left: Device;
  readonly right: Device;
}

/** Parts of the model that a correct provider may lack. */
type Feature =
  | 'atomics'
  /** A queue holds exactly as many requests as were asked for. */
  | 'exactQueues'
  | 'cqOverrun'
  | 'srq'
  | 'srqLimit'
  /** A QP that fails is announced by an event. */
  | 'qpFatal'
  /** The responder's QP goes to ERR as well when it refuses a request. */
  | 'responderDies'
  | 'grants'
  /** A granted key is refused to the peers of other QPs. */
  | 'boundGrants'
  | 'solicited'
  /** A failed completion wakes a CQ that is armed for solicited ones only. */
  | 'solicitedErrors'
  /** A request that fails here has the status of its failure, rather than that of a flush. */
  | 'localStatus'
  /** A receive that fails has the status of its failure, here and at the sender. */
  | 'receiveStatus'
  /** An atomic on an odd address is refused by the peer, not by the local device. */
  | 'unalignedAtomics'
  | 'sendQueueDrain'
  /** Back in RTS, what was posted in SQD goes out by itself. */
  | 'sendQueueResume'
  /** A fenced request that comes before its receive is tried again, as others are. */
  | 'fencedRetry'
  | 'bigMessages'
  /** A peer that never was, or is gone, is detected. */
  | 'retryExceeded';

export interface ConformanceTarget {
  readonly name: string;
  open(): Promise<DevicePair>;
  /** Where peers find a device. Default: its preferred GID. */
  readonly gidOf?: GidOf;
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
    using rig = Rig.build(pair, { ...(target.gidOf && { gidOf: target.gidOf }), ...options });
    await body(rig);
  });
}
