// Registers a virtual machine with a backend that runs already: its ends are passed over the
// backend's socket, in one message.

import { MillraceError, UsageError } from '../../../errors.ts';
import { SharedMemory, Socket } from '../../../native/index.ts';
import { awaitMessage, connectToBackend } from '../unix/guest-transport.ts';
import { messageKinds, sendMessage, type UnixMessage } from '../unix/message.ts';
import { MAX_PORTS, sliceOf } from './slices.ts';
import type { QemuEnds } from './wiring.ts';

const namePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$/;

/**
 * Blocks until the backend has answered. The backend gets copies of the ends; whoever calls this
 * closes its own.
 */
export function registerMachine(socketPath: string, name: string, ends: QemuEnds): void {
  using socket = connectToBackend(socketPath);
  const fds = [ends.memory.fd, ends.monitor.fd, ...ends.ports.map(({ fd }) => fd)];
  sendMessage(socket, messageKinds.machine, ends.ports.length, fds, name);
  const attempt = `register the virtual machine ${name} with the backend at ${socketPath}`;
  const answer = awaitMessage(socket, attempt);
  for (const fd of answer.fds) fd.close();
  if (answer.kind === messageKinds.registered) return;
  throw new MillraceError('MILLRACE_ERR_PERMISSION', `${attempt}: it refused: ${answer.text}`);
}

/**
 * Checks the machine of a message, and makes the backend's own ends. Throws UsageError when it is
 * invalid. Closes the message's descriptors.
 */
export function receivedMachine(message: UnixMessage): { readonly name: string; readonly ends: QemuEnds } {
  using passed = new DisposableStack();
  for (const fd of message.fds) passed.use(fd);
  const { text: name, number: count, fds } = message;
  if (!namePattern.test(name))
    throw new UsageError("invalid name of a virtual machine: use letters, digits, '.', '-', '_' (at most 32)");
  if (count < 1 || count > MAX_PORTS || fds.length !== count + 2) {
    throw new UsageError(`a virtual machine with ${count} ports and ${fds.length} descriptors`);
  }
  const [memoryFd, monitorFd, ...portFds] = fds;
  using undo = new DisposableStack();
  // Throws unless it is sealed against shrinking: the process that passed it must not be able to
  // take it away.
  const memory = undo.use(SharedMemory.open(memoryFd.duplicate()));
  const [monitor, ...ports] = [monitorFd, ...portFds].map(({ fd }) => undo.use(Socket.duplicateOf(fd)));
  sliceOf(memory.sizeBytes, 0, count);
  undo.move();
  return { name, ends: { memory, ports, monitor } };
}
