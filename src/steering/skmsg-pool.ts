// The pool of proxy sockets behind `skmsg`: they wait in the kernel for connections to stand for,
// and those that are taken are replaced by new ones.
//
// A proxy socket is one end of a connection of the daemon with itself; the other end is only kept.
// None is used twice: what one program left unread must not reach another.

import { SystemError, UsageError } from '../errors.ts';
import { type BpfMap, type BpfObject, FdWatch, formatAddress, ip, RingBuffer, Socket } from '../native/index.ts';
import { addressOf, addressWords } from './ip-endpoint.ts';
import {
  type IpEndpoint,
  PROXY_REQUEST_BYTES,
  PROXY_TARGET_BYTES,
  type ProxyEvent,
  proxyEventKinds,
  proxyRequestKinds,
  readProxyEvent,
  writeProxyRequest,
  writeProxyTarget,
} from './layouts.ts';
import { askProxy, ProxyConnection } from './proxy-connection.ts';

export interface SkmsgPoolOptions {
  /**
   * Proxy sockets that wait. A burst of more connections than this goes by plain TCP. Default 64.
   */
  readonly size?: number;
  /** Bytes that may wait for a program to read them. Default 1 MiB. */
  readonly creditBytes?: number;
}

export interface SkmsgCounters {
  readonly toProxy: number;
  readonly toProgram: number;
  /** Connections that found the pool empty. */
  readonly noProxy: number;
  readonly heldFins: number;
}

interface Pair {
  readonly near: Socket;
  readonly far: Socket;
}

/** Above all socket cookies of the kernel, and exact in a double. */
const FIRST_PROXY = 2 ** 52;
/** Not 127.0.0.1, whose ports other programs may have used up. */
const HOST = '127.86.52.18';
const TIMEOUT_MS = 1000;
const EVENTS_BYTES = 1 << 20;
const MAX_SIZE = 8192;

export class SkmsgPool implements Disposable {
  readonly #object: BpfObject;
  readonly #size: number;
  readonly #creditBytes: number;
  readonly #undo: DisposableStack;
  readonly #listener: Socket;
  readonly #sockets: BpfMap;
  readonly #numbers: BpfMap;
  readonly #associations: BpfMap;
  readonly #targets: BpfMap;
  readonly #counts: BpfMap;
  readonly #events: RingBuffer;
  readonly #free = new Map<number, Pair>();
  readonly #taken = new Map<number, { readonly pair: Pair; readonly connection: ProxyConnection }>();
  #next = FIRST_PROXY;
  #onConnection: (connection: ProxyConnection) => void = () => {};

  /** Fills the pool at once, or throws and leaves nothing behind. */
  constructor(object: BpfObject, options: SkmsgPoolOptions = {}) {
    const { size = 64, creditBytes = 1 << 20 } = options;
    if (!Number.isInteger(size) || size < 1 || size > MAX_SIZE) {
      throw new UsageError(`a pool of ${size} proxy sockets: expected 1 to ${MAX_SIZE}`);
    }
    using undo = new DisposableStack();
    this.#object = object;
    this.#size = size;
    this.#creditBytes = creditBytes;
    this.#sockets = undo.use(object.openMap('intercepted_sockets'));
    this.#numbers = undo.use(object.openMap('proxy_numbers'));
    this.#associations = undo.use(object.openMap('socket_association'));
    this.#targets = undo.use(object.openMap('proxy_targets'));
    this.#counts = undo.use(object.openMap('skmsg_counts'));
    this.#events = undo.use(new RingBuffer(object.mapFd('new_sk'), EVENTS_BYTES));
    this.#listener = undo.use(Socket.stream('ipv4'));
    this.#listener.bind(ip(HOST, 0));
    this.#listener.listen();
    undo.defer(() => this.#closePairs());
    this.#refill();
    undo.use(FdWatch.start(this.#events.fd, () => this.#consume()));
    this.#undo = undo.move();
  }

  get freeCount(): number {
    return this.#free.size;
  }

  get takenCount(): number {
    return this.#taken.size;
  }

  /**
   * Called for each connection that a proxy socket now stands for. The listener owns it, and closes
   * it.
   */
  onConnection(listener: (connection: ProxyConnection) => void): void {
    this.#onConnection = listener;
  }

  /**
   * Connections that this server accepts from that host are taken over: the daemon there does the
   * same.
   */
  expect(server: IpEndpoint, clientHost: string): void {
    this.#targets.update(targetKey(server, clientHost), new Uint8Array(4));
  }

  forget(server: IpEndpoint, clientHost: string): void {
    this.#targets.delete(targetKey(server, clientHost));
  }

  counters(): SkmsgCounters {
    const value = new Uint8Array(8);
    const [toProxy = 0, toProgram = 0, noProxy = 0, heldFins = 0] = [0, 1, 2, 3].map((index) => {
      this.#counts.lookup(new Uint8Array(new Uint32Array([index]).buffer), value);
      return Number(new DataView(value.buffer).getBigUint64(0, true));
    });
    return { toProxy, toProgram, noProxy, heldFins };
  }

  close(): void {
    this.#undo.dispose();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #consume(): void {
    this.#events.consume((bytes, offset) =>
      this.#hear(readProxyEvent(new DataView(bytes.buffer, bytes.byteOffset), offset)),
    );
    this.#refill();
  }

  #hear(event: ProxyEvent): void {
    if (event.kind === proxyEventKinds.closed) {
      this.#taken.get(event.proxy)?.connection.onProgramGone();
      return;
    }
    const pair = this.#free.get(event.proxy);
    if (pair === undefined) return; // the proxy socket of an earlier pool
    this.#free.delete(event.proxy);
    const spec = {
      proxy: event.proxy,
      socket: pair.near,
      local: addressOf(event.local),
      remote: addressOf(event.remote),
      isClient: event.isClient === 1,
      creditBytes: this.#creditBytes,
    };
    const connection = new ProxyConnection(this.#object, spec, () => this.#release(event.proxy));
    this.#taken.set(event.proxy, { pair, connection });
    this.#onConnection(connection);
  }

  #release(proxy: number): void {
    const pair = this.#taken.get(proxy)?.pair;
    this.#taken.delete(proxy);
    this.#associations.delete(word64(proxy));
    if (pair !== undefined) closePair(pair);
  }

  #refill(): void {
    while (this.#free.size < this.#size) {
      const pair = this.#makePair();
      const proxy = this.#next++;
      this.#free.set(proxy, pair);
      const number = new Uint8Array(PROXY_REQUEST_BYTES);
      const view = new DataView(number.buffer);
      writeProxyRequest(view, 0, { proxy, kind: proxyRequestKinds.offer, bytes: 0, queued: 0 });
      this.#numbers.update(new Uint8Array(new Int32Array([pair.near.fd]).buffer), number);
      this.#sockets.update(word64(proxy), word64(pair.near.fd));
      askProxy(this.#object, proxy, 'offer');
    }
  }

  #makePair(): Pair {
    using undo = new DisposableStack();
    const near = undo.use(Socket.stream('ipv4'));
    near.connect(this.#listener.localAddress);
    const deadlineMs = performance.now() + TIMEOUT_MS;
    for (;;) {
      // Another process may connect here, too: only the connection of `near` is taken.
      const far = this.#listener.accept();
      if (far !== undefined && formatAddress(far.peerAddress) === formatAddress(near.localAddress)) {
        undo.move();
        return { near, far };
      }
      far?.close();
      if (performance.now() > deadlineMs) throw new SystemError(-110, 'accept4', `a proxy socket on ${HOST}`);
    }
  }

  #closePairs(): void {
    for (const { connection } of this.#taken.values()) connection.close();
    for (const pair of this.#free.values()) closePair(pair);
    this.#free.clear();
  }
}

function closePair({ near, far }: Pair): void {
  near.close();
  far.close();
}

function targetKey(server: IpEndpoint, clientHost: string): Uint8Array {
  const key = new Uint8Array(PROXY_TARGET_BYTES);
  writeProxyTarget(new DataView(key.buffer), 0, { server, client: addressWords(clientHost) });
  return key;
}

function word64(value: number): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(value), true);
  return bytes;
}
