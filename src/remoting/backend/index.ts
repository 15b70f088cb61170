// Remoting: the backend that lends this machine's RDMA devices to guests. Its frontend is a provider (providers/remote).

export { Backend, type BackendOptions } from './backend.ts';
export { type GuestEventMessage, subscribeGuests } from './events.ts';
export { type BackendPolicy, type DeviceGrant, defaultLimits } from './policy.ts';
export { QemuMachine, type QemuMachineOptions } from './qemu-machine.ts';
