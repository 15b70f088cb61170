// Opens everything there is on a device, says so, and then stands still until it is terminated.

import { parentPort } from 'node:worker_threads';
import { ibverbsProvider } from '../../../src/providers/ibverbs/index.ts';
import { Device } from '../../../src/verbs/index.ts';

const device = new Device(ibverbsProvider.openDevice('rxe0'));
const channel = device.createChannel();
const cq = device.createCq({ channel });
const pd = device.createPd();
pd.allocate({ sizeBytes: 1 << 20 });
const { gids, gidIndex = 0 } = device.port();
pd.createAh({ gid: gids[gidIndex] ?? '::' });
const qp = pd.createQp({ sendCq: cq, srq: pd.createSrq() });
qp.init();
void channel.changed(cq);
parentPort?.postMessage('open');
