// Tries at load, with two sockets of this process, whether this kernel can run the shortcut.
//
// Credit needs redirected bytes to be charged to the receiver's queue (sk_rmem_alloc), which
// kernels do since about 6.15. Redirected bytes must also stay readable after the connection has
// ended (5.16).

import { SystemError } from '../errors.ts';
import { type BpfObject, ip, SharedMemory, Socket } from '../native/index.ts';

const MESSAGE_BYTES = 1000;
/** Not 127.0.0.1, whose ports other programs may have used up. */
const HOST = '127.86.52.17';
/** Loopback answers within the call; a busy machine may take a little longer. */
const TIMEOUT_MS = 1000;

/** Why the shortcut would not work here; null when it does. */
export function tryShortcut(object: BpfObject): string | null {
  using undo = new DisposableStack();
  try {
    return tryWith(object, undo);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    return `could not be tried with two sockets on ${HOST}: ${error.message}`;
  }
}

function tryWith(object: BpfObject, undo: DisposableStack): string | null {
  const [sender, receiver] = connectedPair(undo);
  const memory = undo.use(SharedMemory.create({ sizeBytes: 4096 }));
  const sockets = undo.use(object.openMap('trial_sockets'));
  const charge = undo.use(object.openMap('trial_charge'));
  undo.use(object.attachToMap('shortcut_trial', 'trial_sockets'));
  for (const [key, { fd }] of [sender, receiver].entries()) sockets.update(word64(key), word64(fd));

  sender.send(memory, 0, MESSAGE_BYTES);
  // A message of one byte makes the program read what its sender's queue was charged.
  receiver.send(memory, 0, 1);
  const charged = new Uint8Array(4);
  charge.lookup(new Uint8Array(4), charged);
  const chargedBytes = new DataView(charged.buffer).getUint32(0, true);
  if (chargedBytes !== MESSAGE_BYTES) {
    return `this kernel charges ${chargedBytes} of ${MESSAGE_BYTES} redirected bytes to their receiver, so nothing would limit them (Linux 6.15 or newer)`;
  }
  within('the byte back', () => sender.receive(memory, 0, 1) === 1);
  receiver.shutdownSend();
  sender.close();
  if (receiver.receive(memory, 0, MESSAGE_BYTES) !== MESSAGE_BYTES) {
    return 'this kernel forgets redirected bytes when the connection ends (Linux 5.16 or newer)';
  }
  return null;
}

function connectedPair(undo: DisposableStack): readonly [Socket, Socket] {
  using listener = Socket.stream('ipv4');
  listener.bind(ip(HOST, 0));
  listener.listen(1);
  const client = undo.use(Socket.stream('ipv4'));
  client.connect(listener.localAddress);
  let server: Socket | undefined;
  within('a connection to itself', () => {
    server ??= listener.accept();
    return server !== undefined;
  });
  if (server === undefined) throw new SystemError(-110, 'accept4', HOST);
  return [client, undo.use(server)];
}

function within(what: string, isSo: () => boolean): void {
  const deadlineMs = performance.now() + TIMEOUT_MS;
  while (!isSo()) if (performance.now() > deadlineMs) throw new SystemError(-110, 'wait for', what);
}

function word64(value: number): Uint8Array {
  return new Uint8Array(new Uint32Array([value, 0]).buffer);
}
