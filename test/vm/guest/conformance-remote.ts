// The conformance suite through remoting, run inside a guest that has no RDMA device: two connections to the backend below it.

import { after } from 'node:test';
import { RemoteConnection } from '../../../src/providers/remote/index.ts';
import { QemuGuest } from '../../../src/remoting/qemu-guest.ts';
import { Device } from '../../../src/verbs/index.ts';
import { conformance } from '../../conformance/index.ts';

const left = RemoteConnection.open(QemuGuest.connect());
const right = RemoteConnection.open(QemuGuest.connect());

after(() => {
  left.close();
  right.close();
});

conformance({
  name: 'remote shm by QEMU',
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
