// One process writes into the memory of another, and counts there with atomics. Run it with Node
// 24:
//
//   node examples/remote-memory.ts
//
// The parent offers 4 KiB. The child uses TCP only to exchange the QP endpoints; the bytes go over
// the RDMA device. For a real device, set DEVICE to its name.

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { access, connectQp, openDevice, Requests } from '../src/providers/index.ts'; // outside: 'millrace/verbs'

const deviceName = process.env.DEVICE ?? 'soft-shm';
const everything = access.localWrite | access.remoteWrite | access.remoteRead | access.remoteAtomic;

async function offer(): Promise<void> {
  using device = openDevice(deviceName);
  using pd = device.createPd();
  using memory = pd.allocate({ sizeBytes: 4096, access: everything });
  using channel = device.createChannel();
  using qp = pd.createQp({ sendCq: device.createCq({ channel }) });
  using requests = new Requests(qp);

  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' ? address?.port : undefined;
  const child = fork(fileURLToPath(import.meta.url), [String(port)]);
  const exited = once(child, 'exit');
  const [socket] = (await once(server, 'connection')) as [Socket];
  qp.init();
  const ready = requests.receive(memory, 0, 0);
  await connectQp(socket, qp, { regions: { memory } });

  // This process does not touch the memory: the child does, and then sends an empty message.
  await ready;
  const text = new TextDecoder().decode(memory.bytes.subarray(0, 26));
  const count = new DataView(memory.memory.buffer).getBigUint64(64, true);
  console.log(`the other process wrote: "${text}", and counted to ${count}`);
  await exited;
  socket.destroy();
  server.close();
}

async function write(port: number): Promise<void> {
  using device = openDevice(deviceName);
  using pd = device.createPd();
  using mine = pd.allocate({ sizeBytes: 4096 });
  using channel = device.createChannel();
  using qp = pd.createQp({ sendCq: device.createCq({ channel }) });
  using requests = new Requests(qp);
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  const { regions } = await connectQp(socket, qp, { expect: ['memory'] });

  mine.bytes.set(new TextEncoder().encode('hello from another process'));
  await requests.write(mine, 0, 26, regions.memory, 0);
  for (let i = 0; i < 1000; i++) await requests.fetchAdd(regions.memory, 64, 1n);
  await requests.send(mine, 0, 0);
  socket.destroy();
}

const port = process.argv[2];
await (port === undefined ? offer() : write(Number(port)));
