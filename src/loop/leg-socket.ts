// Socket options of a leg: the TCP connection between the daemon and a program of its host.

import type { Socket } from '../native/index.ts';

/**
 * Called before connect or listen: the window scale is negotiated in the first packet. Accepted
 * sockets inherit all of it.
 */
export function prepareLeg(socket: Socket, bufferBytes: number): void {
  socket.setOption('receiveBuffer', bufferBytes);
  socket.setOption('sendBuffer', bufferBytes);
  socket.setOption('noDelay', 1);
  // A leg never leaves the host, so there is nobody to be fair to. BBR, the default of many
  // systems, would pace it to half the speed. The same is done for the program's end in
  // bpf/connect.bpf.c.
  socket.setCongestionControl('reno');
  // If this process is killed, the kernel closes its sockets; the program must see a reset then,
  // not an end.
  socket.resetOnClose();
}
