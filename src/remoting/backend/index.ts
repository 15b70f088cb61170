// The backend of remoting: lends this machine's RDMA devices to guests. Its frontend is a provider
// (providers/remote).

export { Backend } from './backend.ts';
export { subscribeGuests } from './guest-events.ts';
export { defaultLimits } from './policy.ts';
