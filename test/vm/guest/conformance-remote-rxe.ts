// The conformance suite through remoting inside a guest, on the kernel's own RDMA device there: a
// backend that is another process of the guest drives rxe, as it would drive hardware on a host,
// and this process has nothing but its socket.

import { after } from 'node:test';
import { UnixGuest } from '../../../src/remoting/transports/unix/guest-transport.ts';
import { conformance, type Part } from '../../conformance/index.ts';
import { RemoteEnds } from '../../conformance/remote-ends.ts';
import { rxeLacks } from './rxe-lacks.ts';

const socketPath = process.argv[2] ?? '';
const ATTEMPTS = 5;
const ends = new RemoteEnds(connect);
after(() => ends.close());

/**
 * The first time, the backend still compiles what it runs, which takes long on an emulated
 * processor.
 */
function connect(): UnixGuest {
  for (let attempt = 0; ; attempt++) {
    try {
      return UnixGuest.connect(socketPath);
    } catch (error) {
      if (attempt === ATTEMPTS) throw error;
    }
  }
}

const lacks = {
  ...rxeLacks,
  solicited: 'libibverbs does not say which completions were solicited, so to a guest all of them are',
  // The two ends have a thread each at the backend: what the test has posted last may be there
  // first.
  fencedRetry: 'in Linux 6.12, a fenced request of rxe that finds no receive is never tried again',
} as const;

/**
 * What depends on the device below; the other parts are about what the backend does by itself, and
 * take long on an emulated processor.
 */
const parts: readonly Part[] = ['opcodes', 'flags', 'retries', 'channels', 'sharedReceives'];

conformance(ends.target('remote rxe', 'rxe0', lacks), parts);
