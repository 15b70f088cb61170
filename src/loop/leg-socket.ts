// A socket of the daemon on a leg: the way between it and a program of its own host.

import type { Socket } from '../native/index.ts';

/** Before it connects or listens: the window's scale is agreed on in the first packet. Accepted sockets inherit all of it. */
export function prepareLeg(socket: Socket, bufferBytes: number): void {
  socket.setOption('receiveBuffer', bufferBytes);
  socket.setOption('sendBuffer', bufferBytes);
  socket.setOption('noDelay', 1);
  // A leg never leaves the host, so there is nobody to be fair to. BBR, many a system's default, would pace it: half the speed.
  // The program's own end is eased in bpf/connect.bpf.c.
  socket.setCongestionControl('reno');
  // Should this process be killed, the kernel closes its sockets: the program must not take that for the end.
  socket.resetOnClose();
}
