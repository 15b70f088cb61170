// The object model of RDMA. `millrace/verbs` is this with the built-in providers
// (src/providers/index.ts).

export { access } from './access.ts';
export { Ah, GRH_BYTES } from './ah.ts';
export { CompletionChannel } from './channel.ts';
export {
  type Completion,
  CompletionBatch,
  type CompletionOpcode,
  type CompletionStatus,
  completionFlags,
  completionOpcodes,
  completionRow,
  completionStatuses,
  likelyCauses,
  statusName,
} from './completion.ts';
export { CompletionError } from './completion-error.ts';
export { type Connected, type ConnectOptions, connectQp, type ModifyToRtsOptions, modifyToRts } from './connect.ts';
export { Cq, type CqOptions } from './cq.ts';
export { Device, type DeviceEvents } from './device.ts';
export { DrivenChannel } from './driven-channel.ts';
export { decodeQpEndpoint, encodeQpEndpoint, type QpEndpoint, type RemoteRegion } from './endpoint/index.ts';
export { formatGid, type Gid, gidBytes } from './gid.ts';
export { localQpEndpoint, randomPsn } from './local-endpoint.ts';
export { Mr } from './mr.ts';
export { type AllocateOptions, Pd, type RegisterOptions } from './pd.ts';
export type * from './provider.ts';
export { Qp, type QpOptions } from './qp.ts';
export {
  type Mtu,
  type PathTo,
  type QpAttributes,
  type QpState,
  type QpType,
  qpStates,
} from './qp-state.ts';
export { listDevices, openDevice, openProvided, registerProvider } from './registry.ts';
export { type Received, Requests, type SendOptions } from './requests.ts';
export { Srq, type SrqOptions } from './srq.ts';
export {
  type BatchOptions,
  ReceiveBatch,
  read64,
  receiveRow,
  SendBatch,
  type SendOpcode,
  sendFlags,
  sendOpcodes,
  sendRow,
  sgeRow,
  write64,
} from './work-request.ts';
