// The daemon of steer.skmsg.*, a process: joins the two proxy sockets of each connection, both of
// whose ends are on this host.
//
//   steer-skmsg CGROUP INSTANCE ADDRESS:PORT

import { EventLoop } from '../../src/loop/index.ts';
import { type Address, formatAddress, pollEvents, SharedMemory } from '../../src/native/index.ts';
import { type ProxyConnection, parseIpEndpoint, parseRule, Steering } from '../../src/steering/index.ts';
import { LoopDriver } from './loop-driver.ts';

const CHUNK_BYTES = 256 * 1024;
/** Enough for the connections that have closed and whose FIN is still held back. */
const POOL_SIZE = 1024;
/** The kernel does not say when a program has read: it is asked again. */
const RETRY_MS = 1;

/** One direction. */
class Way {
  readonly #lane: EventLoop;
  readonly #memory: SharedMemory;
  readonly #from: ProxyConnection;
  readonly #to: ProxyConnection;
  #token: number | null = null;
  #timer: NodeJS.Timeout | null = null;

  constructor(lane: EventLoop, memory: SharedMemory, from: ProxyConnection, to: ProxyConnection) {
    this.#lane = lane;
    this.#memory = memory;
    this.#from = from;
    this.#to = to;
    this.#watch();
  }

  #watch(): void {
    this.#token = this.#lane.watch(this.#from.fd, pollEvents.in, this);
  }

  onEvents(): void {
    const room = this.#to.roomBytes();
    if (room === 0) {
      this.stop();
      this.#timer = setTimeout(() => this.#watch(), RETRY_MS);
      return;
    }
    const length = this.#from.receive(this.#memory, 0, Math.min(room ?? CHUNK_BYTES, CHUNK_BYTES));
    if (length <= 0) return;
    try {
      for (let sent = 0; sent < length; ) sent += Math.max(0, this.#to.send(this.#memory, sent, length - sent));
    } catch {
      // Its program is gone, and the bytes with it.
    }
    this.#from.delivered(length);
  }

  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    if (this.#token !== null) this.#lane.unwatch(this.#from.fd, this.#token);
    this.#timer = null;
    this.#token = null;
  }
}

function pairName(local: Address, remote: Address): string {
  return `${formatAddress(local)} ${formatAddress(remote)}`;
}

function carry(lane: EventLoop, memory: SharedMemory, ends: readonly [ProxyConnection, ProxyConnection]): void {
  const [one, other] = ends;
  const ways = [new Way(lane, memory, one, other), new Way(lane, memory, other, one)];
  let open = ends.length;
  for (const end of ends) {
    end.onProgramGone = () => {
      if (--open > 0) return;
      for (const way of ways) way.stop();
      for (const closed of ends) closed.close();
    };
  }
}

const [cgroup = '', instance = '', server = ''] = process.argv.slice(2);
const rules = [parseRule(`skmsg to ${server}`)];
const steering = Steering.create({ instance, cgroup, rules });
const lane = new EventLoop();
const memory = SharedMemory.create({ sizeBytes: CHUNK_BYTES });
const driver = new LoopDriver(lane);
const pool = steering.openSkmsgPool({ size: POOL_SIZE });
/** Ends whose other end has not been heard of. */
const waiting = new Map<string, ProxyConnection>();
pool.onConnection((connection) => {
  const { local, remote } = connection.spec;
  const partner = waiting.get(pairName(remote, local));
  if (partner === undefined) {
    waiting.set(pairName(local, remote), connection);
    return;
  }
  waiting.delete(pairName(remote, local));
  carry(lane, memory, [connection, partner]);
});
steering.announce(parseIpEndpoint(server));
steering.serve({});
process.once('SIGTERM', () => {
  steering.stopServing();
  driver.close();
  pool.close();
  steering.close();
  process.exit();
});
process.stdout.write('ready\n');
