// The conformance suite through remoting, run inside a guest that has no RDMA device: two
// connections to the backend below it.

import { after } from 'node:test';
import { QemuGuest } from '../../../src/remoting/transports/qemu/guest-transport.ts';
import { conformance } from '../../conformance/index.ts';
import { RemoteEnds } from '../../conformance/remote-ends.ts';

const ends = new RemoteEnds(() => QemuGuest.connect());
after(() => ends.close());

conformance(ends.target('remote shm by QEMU', 'soft-shm'));
