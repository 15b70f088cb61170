// Whose connections are carried, and how they reach the daemon.

export { type AcceptLine, formatAcceptLine, parseAcceptLines } from './accept-line.ts';
export { Admissions, type HeardSyn, type Knock, type Passage } from './admissions.ts';
export {
  type Check,
  type Explanation,
  explainConnection,
  isMeant,
  ruleOf,
  verdictName,
  verdictWords,
  type Which,
} from './explain.ts';
export { followListeners, type Listener } from './follow-listeners.ts';
export { addressOf, canonicalHost, endpointOf, formatIpEndpoint, hostOf, parseIpEndpoint } from './ip-endpoint.ts';
export { LANE_BEAT_NS, LANE_PORTS, LaneSteering } from './lane-steering.ts';
export { type Connection, eventKinds, type IpEndpoint, verdicts } from './layouts.ts';
export { isHostLocal, ownAddresses } from './listeners.ts';
export { isInNetwork } from './network.ts';
export { type MethodName, tryMethods } from './object.ts';
export { folderOf, listInstances, type PinnedInstance, removeInstance, sweepInstances } from './pins.ts';
export { formatRule, MAX_RULES, parseRule, parseRules, type SteerRule } from './rules.ts';
export { Steering, type Verdict } from './steering.ts';
export { SteeringView } from './view.ts';
