// The programs of the remoting rows: a backend, a peer that is written to, and a guest that runs
// loops natively and remoted.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { monotonicNs, type SharedMemory } from '../../src/native/index.ts';
import {
  access,
  CompletionBatch,
  connectQp,
  type Device,
  openSoftDevice,
  SendBatch,
  sendFlags,
} from '../../src/providers/index.ts';
import { openRemoteDevice } from '../../src/providers/remote/index.ts';
import { Backend } from '../../src/remoting/backend/index.ts';
import type { WaitMode } from '../../src/spin/index.ts';
import { GuestWorld, type LoopOrder } from './remoting-loops.ts';

export interface ProgramOptions {
  readonly role: 'backend' | 'peer' | 'guest';
  /** The folder of the sockets. */
  readonly folder: string;
  readonly wait?: WaitMode;
  readonly sizeBytes: number;
}

/** The sockets and the wire of a row's processes. */
export const places = (folder: string) =>
  ({
    backend: join(folder, 'backend.sock'),
    peer: join(folder, 'peer.sock'),
    shm: { wire: 'shm', runtimeDir: join(folder, 'shm') },
  }) as const;

function runBackend({ folder, wait = 'mixed' }: ProgramOptions): void {
  const { backend, shm } = places(folder);
  Backend.start({
    socketPath: backend,
    devices: [{ name: 'soft-shm', soft: shm }],
    wait,
    limits: { memoryBytes: 2 ** 32 },
  });
}

/**
 * Offers its memory to each guest that connects, and sends the time whenever the guest asks for it.
 */
async function runPeer({ folder, sizeBytes }: ProgramOptions): Promise<void> {
  const device = openSoftDevice(places(folder).shm);
  const pd = device.createPd();
  const flags = access.localWrite | access.remoteWrite | access.remoteRead;
  const target = pd.allocate({ sizeBytes, access: flags });
  target.bytes.fill(1);
  const server = createServer((socket) => {
    const cq = device.createCq();
    const qp = pd.createQp({ sendCq: cq });
    const batch = new SendBatch({ capacity: 1, maxSge: 1 });
    const completions = new CompletionBatch();
    const stamp = pd.allocate({ sizeBytes: 8 });
    const words = new Float64Array(stamp.memory.buffer);
    socket.on('close', () => {
      qp.close();
      stamp.close();
      cq.close();
    });
    void connectQp(socket, qp, { regions: { target } }).then(() => {
      socket.on('data', (asked) => {
        // One message for each byte, which the guest sends when it is about to sleep.
        for (let index = 0; index < asked.length; index++) {
          batch.clear();
          batch.send(1, sendFlags.signaled | sendFlags.inline).sge(stamp.lkey, stamp.address, 8);
          words[0] = monotonicNs();
          qp.postSend(batch);
          cq.poll(completions);
        }
      });
    });
  });
  server.listen(places(folder).peer);
  await once(server, 'listening');
}

async function runGuest({ folder, sizeBytes, wait = 'mixed' }: ProgramOptions): Promise<void> {
  const { backend, peer, shm } = places(folder);
  const build = async (device: Device, from: SharedMemory | number): Promise<GuestWorld> => {
    const socket = connect(peer);
    await once(socket, 'connect');
    return GuestWorld.build(device, socket, from);
  };
  const remoted = await build(openRemoteDevice('soft-shm', { socketPath: backend, wait }), sizeBytes);
  // Both devices use the same memory, because the place of the pages matters more than which
  // process copies them.
  const worlds = { remoted, native: await build(openSoftDevice(shm), remoted.memory) };
  process.on('message', (order: LoopOrder) => {
    void worlds[order.where].run(order).then((figure) => process.send?.({ figure }));
  });
}

const options = JSON.parse(process.argv[2] ?? '{}') as ProgramOptions;
process.on('disconnect', () => process.exit());
if (options.role === 'backend') runBackend(options);
else if (options.role === 'peer') await runPeer(options);
else await runGuest(options);
process.send?.({ figure: 0 });
