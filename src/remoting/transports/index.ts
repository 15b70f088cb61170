// What carries remoting between a guest and the backend: unix sockets for processes, QEMU for virtual machines.

export { openGuestTransport } from './guest-transports.ts';
export { closeHostTransport, type HostTransportSpec, openHostTransport } from './host-transports.ts';
export { encodeFrame, FRAME_BYTES, FrameFinder } from './qemu-frames.ts';
export type { QemuHostSpec } from './qemu-host.ts';
export { QemuMonitor } from './qemu-monitor.ts';
export { receivedMachine, registerMachine } from './qemu-register.ts';
export { type Slice, sliceOf } from './qemu-slices.ts';
export { closeEnds, type QemuEnds, type QemuSharing, QemuWiring } from './qemu-wiring.ts';
export { messageKinds, receiveMessage, sendMessage, type UnixMessage } from './unix-message.ts';
