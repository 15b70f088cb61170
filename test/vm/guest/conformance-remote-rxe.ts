// The conformance suite through remoting inside a guest, on the kernel's own RDMA device there: a backend that is another process of the guest
// drives rxe, as it would drive hardware on a host, and this process has nothing but its socket.

import { after } from 'node:test';
import { RemoteConnection } from '../../../src/providers/remote/index.ts';
import { UnixGuest } from '../../../src/remoting/unix-guest.ts';
import { Device } from '../../../src/verbs/index.ts';
import { conformance } from '../../conformance/index.ts';
import { rxeLacks } from './rxe-lacks.ts';

const socketPath = process.argv[2] ?? '';
const [left, right] = [1, 2].map(() => RemoteConnection.open(UnixGuest.connect(socketPath)));

after(() => {
  left.close();
  right.close();
});

conformance(
  {
    name: 'remote rxe',
    lacks: rxeLacks,
    open: async () => {
      const pair = { left: new Device(left.openDevice('rxe0')), right: new Device(right.openDevice('rxe0')) };
      return {
        ...pair,
        async [Symbol.asyncDispose]() {
          pair.left.close();
          pair.right.close();
        },
      };
    },
  },
  ['opcodes'],
);
