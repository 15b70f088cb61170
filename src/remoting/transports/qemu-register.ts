// How a virtual machine gets to a backend that runs already: its ends are passed over the backend's socket, in one message.

import { MillraceError, UsageError } from '../../errors.ts';
import { SharedMemory, Socket } from '../../native/index.ts';
import { MAX_PORTS, sliceOf } from './qemu-slices.ts';
import type { QemuEnds } from './qemu-wiring.ts';
import { awaitMessage, connectToBackend } from './unix-guest.ts';
import { messageKinds, sendMessage, type UnixMessage } from './unix-message.ts';

const namePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$/;

/** Blocks until the backend has answered. The ends stay the caller's, who closes them: the backend has copies. */
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

/** What somebody has passed: checked, and the backend's own. Throws a UsageError when it is no machine. Closes the message's descriptors. */
export function receivedMachine(message: UnixMessage): { readonly name: string; readonly ends: QemuEnds } {
  using passed = new DisposableStack();
  for (const fd of message.fds) passed.use(fd);
  const { text: name, number: count, fds } = message;
  if (!namePattern.test(name)) throw new UsageError('a virtual machine whose name is none');
  if (count < 1 || count > MAX_PORTS || fds.length !== count + 2) {
    throw new UsageError(`a virtual machine with ${count} ports and ${fds.length} descriptors`);
  }
  const [memoryFd, monitorFd, ...portFds] = fds;
  using undo = new DisposableStack();
  // Sealed against shrinking, or it throws: who passed it must not be able to take it away.
  const memory = undo.use(SharedMemory.open(memoryFd.duplicate()));
  const [monitor, ...ports] = [monitorFd, ...portFds].map(({ fd }) => undo.use(Socket.duplicateOf(fd)));
  sliceOf(memory.sizeBytes, 0, count);
  undo.move();
  return { name, ends: { memory, ports, monitor } };
}
