// The conformance suite through remoting inside a guest, on the kernel's own RDMA device there: a backend that is another process of the guest
// drives rxe, as it would drive hardware on a host, and this process has nothing but its socket.

import { after } from 'node:test';
import { RemoteConnection } from '../../../src/providers/remote/index.ts';
import { UnixGuest } from '../../../src/remoting/unix-guest.ts';
import { Device } from '../../../src/verbs/index.ts';
import { conformance, type Part } from '../../conformance/index.ts';
import { rxeLacks } from './rxe-lacks.ts';

const socketPath = process.argv[2] ?? '';
const [left, right] = [1, 2].map(() => RemoteConnection.open(UnixGuest.connect(socketPath)));

after(() => {
  left.close();
  right.close();
});

const lacks = {
  ...rxeLacks,
  solicited: 'libibverbs does not say which completions were solicited, so to a guest all of them are',
  // The two ends have a thread each at the backend: what the test has posted last may be there first.
  fencedRetry: 'in Linux 6.12, a fenced request of rxe that finds no receive is never tried again',
} as const;

/** What depends on the device below; the other parts are about what the backend does by itself, and take long on an emulated processor. */
const parts: readonly Part[] = ['opcodes', 'flags', 'retries', 'channels', 'sharedReceives'];

conformance(
  {
    name: 'remote rxe',
    lacks,
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
  parts,
);
