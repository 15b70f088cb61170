// The daemon of steer.connect.*, a process: accepts the steered connections and joins each by plain
// TCP to its server, which is on the same host.
//
//   steer-connect CGROUP INSTANCE ADDRESS:PORT

import { SystemError } from '../../src/errors.ts';
import {
  Acceptor,
  BufferPool,
  EventLoop,
  type PooledBuffer,
  prepareLeg,
  type Resumable,
  type Watched,
} from '../../src/loop/index.ts';
import { AGAIN, ip, pollEvents, Socket } from '../../src/native/index.ts';
import { LANE_BEAT_NS, LaneSteering, parseIpEndpoint, parseRule, Steering } from '../../src/steering/index.ts';
import { LoopDriver } from './loop-driver.ts';

/** Of each socket, each way, so that a receiver that stops soon stops its sender. */
const SOCKET_BUFFER_BYTES = 2 * 1024 * 1024;
/** Buffers that one direction may move before other connections have their turn. */
const MAX_ROUNDS = 4;
const EVENTS = pollEvents.in | pollEvents.out | pollEvents.peerClosed | pollEvents.edge;
const TO_END = pollEvents.hangup | pollEvents.peerClosed;

const loop = new EventLoop();
const buffers = new BufferPool();
/** Bytes are received here; it stays with a leg while the other leg cannot take them. */
let scratch = buffers.take();

/**
 * One socket of a joined connection, and the bytes from it that the other leg has not taken yet.
 */
class Leg implements Watched, Resumable {
  readonly socket: Socket;
  readonly #token: number;
  #other: Leg = this;
  #isReadable = false;
  #isWritable = false;
  /** The end of the stream is behind what is readable, so a short read is not the last one. */
  #mustDrain = false;
  #hasEnded = false;
  #held: PooledBuffer | undefined;
  #heldStart = 0;
  #heldEnd = 0;

  static join(client: Socket, server: Socket): void {
    const [one, other] = [new Leg(client), new Leg(server)];
    one.#other = other;
    other.#other = one;
  }

  private constructor(socket: Socket) {
    this.socket = socket;
    this.#token = loop.watch(socket.fd, EVENTS, this);
  }

  onEvents(events: number): void {
    if ((events & pollEvents.error) !== 0) {
      this.#end(true);
      return;
    }
    if ((events & (pollEvents.in | TO_END)) !== 0) this.#isReadable = true;
    if ((events & TO_END) !== 0) this.#mustDrain = true;
    if ((events & pollEvents.out) !== 0) this.#isWritable = true;
    this.resume();
  }

  resume(): void {
    if (this.socket.isClosed) return;
    try {
      this.#move();
      this.#other.#move();
      if (this.#hasEnded && this.#other.#hasEnded) this.#end(false);
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      this.#end(true);
    }
  }

  /** Moves what there is to the other leg. */
  #move(): void {
    const to = this.#other;
    for (let round = 0; ; round++) {
      if (!this.#flush() || !this.#isReadable || !to.#isWritable) return;
      if (round === MAX_ROUNDS) {
        loop.again(this);
        return;
      }
      const count = this.socket.receive(scratch.memory, scratch.offset, buffers.bufferBytes);
      if (count === AGAIN || count === 0) {
        this.#isReadable = false;
        this.#hasEnded = count === 0;
        if (this.#hasEnded) to.socket.shutdownSend();
        return;
      }
      if (count < buffers.bufferBytes && !this.#mustDrain) this.#isReadable = false;
      this.#held = scratch;
      this.#heldStart = 0;
      this.#heldEnd = count;
    }
  }

  /** True when nothing is held any more. */
  #flush(): boolean {
    const held = this.#held;
    if (held === undefined) return true;
    const to = this.#other;
    if (!to.#isWritable) return false;
    const sent = to.socket.send(held.memory, held.offset + this.#heldStart, this.#heldEnd - this.#heldStart);
    this.#heldStart += Math.max(0, sent);
    if (this.#heldStart < this.#heldEnd) {
      to.#isWritable = false;
      if (held === scratch) scratch = buffers.take();
      return false;
    }
    this.#drop();
    return true;
  }

  #drop(): void {
    if (this.#held !== undefined && this.#held !== scratch) buffers.give(this.#held);
    this.#held = undefined;
  }

  /** Ends both legs; `isAbrupt` resets them. */
  #end(isAbrupt: boolean): void {
    for (const leg of [this, this.#other]) {
      if (leg.socket.isClosed) continue;
      leg.#drop();
      loop.forget(leg.#token);
      leg.socket.resetOnClose(isAbrupt);
      leg.socket.close();
    }
  }
}

const [cgroup = '', instance = '', destination = ''] = process.argv.slice(2);
const steering = Steering.create({ instance, cgroup, rules: [parseRule(`connect to ${destination}`)] });
const lane = new LaneSteering(instance, 0);

function join(client: Socket): void {
  const accepted = lane.accepted(client);
  const original = accepted?.original;
  if (accepted === undefined || original === undefined || original.family === 'unix')
    throw new Error('an unsteered connection came');
  const server = Socket.stream(original.family);
  prepareLeg(server, SOCKET_BUFFER_BYTES);
  lane.setTrueClient(server, accepted.client);
  server.connect(original);
  Leg.join(client, server);
}

const address = destination.slice(0, destination.lastIndexOf(':'));
const acceptor = new Acceptor({
  loop,
  address: ip(address, 0),
  bufferBytes: SOCKET_BUFFER_BYTES,
  onAccept: join,
  onPause: (error) => {
    throw error;
  },
  onTurnedAway: () => {},
});
const driver = new LoopDriver(loop);
steering.announce(parseIpEndpoint(destination));
lane.serve(acceptor.listener.netnsCookie, [acceptor.listener]);
lane.beat();
setInterval(() => lane.beat(), LANE_BEAT_NS / 1e6);
steering.serve(1);
process.once('SIGTERM', () => {
  driver.close();
  steering.close();
  process.exit();
});
process.stdout.write('ready\n');
