// What carries remoting between a guest and the backend: unix sockets for processes, QEMU for
// virtual machines.

export { openGuestTransport } from './guest-transports.ts';
export { closeHostTransport, type HostTransportSpec, openHostTransport } from './host-transports.ts';
export type { QemuHostSpec } from './qemu/host-transport.ts';
export { QemuMachine } from './qemu/machine.ts';
export { receivedMachine, registerMachine } from './qemu/registration.ts';
export { closeEnds, QemuWiring } from './qemu/wiring.ts';
export { messageKinds, receiveMessage, sendMessage, type UnixMessage } from './unix/message.ts';
