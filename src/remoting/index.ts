// Remoting: the backend that lends this machine's RDMA devices to guests. Its frontend is a provider (providers/remote).

export { type WaitMode, waitModes } from './adaptive-wait.ts';
export { Backend, type BackendOptions } from './backend.ts';
export { type GuestEventMessage, subscribeGuests } from './events.ts';
export { type BackendPolicy, type DeviceGrant, defaultLimits, type GuestLimits } from './policy.ts';
export { QemuMachine, type QemuMachineOptions } from './qemu-machine.ts';
export { registerMachine } from './qemu-register.ts';
export { closeEnds, type QemuEnds, type QemuSharing, QemuWiring } from './qemu-wiring.ts';
export { recordProvider } from './record.ts';
export type { BackendStatus, GuestStatus } from './status.ts';
