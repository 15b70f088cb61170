// The conformance suite through remoting: two guests of one backend, which drives a soft device. The kernel tier has it on both wires, from a container.

import { after } from 'node:test';
import { conformance } from '../../../test/conformance/index.ts';
import { BackendProcess } from '../../remoting/fixtures/backend-process.ts';
import { UnixGuest } from '../../remoting/unix-guest.ts';
import { Device } from '../../verbs/index.ts';
import { RemoteConnection } from './index.ts';

const backend = await BackendProcess.start();
const [left, right] = [1, 2].map(() => RemoteConnection.open(UnixGuest.connect(backend.socketPath)));

after(async () => {
  left.close();
  right.close();
  await backend[Symbol.asyncDispose]();
});

conformance({
  name: 'remote shm',
  open: async () => {
    const pair = { left: new Device(left.openDevice('soft-shm')), right: new Device(right.openDevice('soft-shm')) };
    return {
      ...pair,
      async [Symbol.asyncDispose]() {
        pair.left.close();
        pair.right.close();
      },
    };
  },
});
