// The rival of vortex.pool, vortex.copy and vortex.register: raw WRITEs of the same length over
// distinct memory, without a stream.

import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import {
  access,
  CompletionBatch,
  connectQp,
  type Device,
  type Mr,
  type Qp,
  SendBatch,
} from '../../src/providers/index.ts';
import { openStreamDevice, wireOfDevice } from '../../src/vortex/net/index.ts';

const IN_FLIGHT = 8;

interface RawSpec {
  readonly device: string;
  readonly localAddress: string;
  /** The memory at each end. */
  readonly regionBytes: number;
}

interface RawEnd extends Disposable {
  readonly device: Device;
  readonly qp: Qp;
  readonly region: Mr;
}

/** Uses huge pages, as the pools do, if there are any. */
function openEnd({ device: name, localAddress, regionBytes }: RawSpec): RawEnd {
  using undo = new DisposableStack();
  const device = undo.use(openStreamDevice(name, wireOfDevice(name), localAddress));
  const pd = device.createPd();
  const flags = { sizeBytes: regionBytes, access: access.localWrite | access.remoteWrite };
  const allocate = (): Mr => {
    try {
      return pd.allocate({ ...flags, hugePages: true });
    } catch {
      return pd.allocate(flags);
    }
  };
  const region = allocate();
  // Pages that were never written are all mapped to the same zero page.
  region.bytes.fill(1);
  const cq = device.createCq({ entries: 4 * IN_FLIGHT });
  const qp = pd.createQp({ sendCq: cq, sendRequests: IN_FLIGHT, maxSge: 1 });
  const kept = undo.move();
  return { device, qp, region, [Symbol.dispose]: () => kept.dispose() };
}

/** The end that is written to, until the other end closes its connection. */
export async function offerRaw(spec: RawSpec, onListening: (port: number) => void): Promise<void> {
  using end = openEnd(spec);
  const server = createServer().listen(0, spec.localAddress);
  await once(server, 'listening');
  const address = server.address();
  const connected = once(server, 'connection') as Promise<[Socket]>;
  onListening(typeof address === 'object' && address !== null ? address.port : 0);
  const [socket] = await connected;
  await connectQp(socket, end.qp, { regions: { target: end.region } });
  socket.resume();
  await once(socket, 'close');
  server.close();
}

/**
 * Writes `sizeBytes` in WRITEs of `writeBytes`, after one unmeasured pass over the region. Resolves
 * to the seconds.
 */
export async function writeRaw(
  spec: RawSpec,
  to: { readonly host: string; readonly port: number },
  { writeBytes, sizeBytes }: { readonly writeBytes: number; readonly sizeBytes: number },
): Promise<number> {
  const { regionBytes } = spec;
  using end = openEnd(spec);
  const socket = connect(to.port, to.host);
  await once(socket, 'connect');
  const { regions } = await connectQp(socket, end.qp, { expect: ['target'] });
  const { rkey, address } = regions.target;
  // WRITEs are direct only once the memory is mapped; a stream maps it too.
  using _window = await end.qp.mapRemote(rkey, address, regionBytes).catch(() => undefined);
  using batch = new SendBatch({ capacity: 1, maxSge: 1 });
  using completions = new CompletionBatch(IN_FLIGHT);
  const run = async (bytes: number): Promise<void> => {
    let [posted, done] = [0, 0];
    const count = Math.ceil(bytes / writeBytes);
    while (done < count) {
      while (posted < count && posted - done < IN_FLIGHT) {
        const at = (posted * writeBytes) % regionBytes;
        batch.clear();
        batch.write(posted++, address + at, rkey).sge(end.region.lkey, end.region.address + at, writeBytes);
        end.qp.postSend(batch);
      }
      const got = end.qp.sendCq.poll(completions);
      for (let row = 0; row < got; row++) end.qp.throwIfFailed(completions, row);
      done += got;
      if (got === 0) await new Promise((resolve) => setImmediate(resolve));
    }
  };
  await run(regionBytes);
  const startMs = performance.now();
  await run(sizeBytes);
  const seconds = (performance.now() - startMs) / 1e3;
  socket.destroy();
  return seconds;
}
