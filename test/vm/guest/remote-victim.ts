// A program of a guest that has objects of every kind through remoting, says so, and stays until it
// is killed.

import { openDevice } from '../../../src/providers/index.ts';

const device = openDevice('soft-shm');
const pd = device.createPd();
const cq = device.createCq({ channel: device.createChannel() });
pd.allocate({ sizeBytes: 1 << 20 });
pd.createSrq();
pd.createQp({ sendCq: cq }).init();
console.log('ready');
setInterval(() => {}, 1000);
