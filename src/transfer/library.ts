// A node of a cluster in this process: allocates DMA buffers that the other nodes know, and moves
// bytes between them.

import { once } from 'node:events';
import { type AddressInfo, connect as connectTo, createServer, type Server, type Socket } from 'node:net';
import { MillraceError, UsageError } from '../errors.ts';
import { WaitingRoom } from '../json-lines/index.ts';
import { copyMemory } from '../native/index.ts';
import { access, type CompletionChannel, type Device, openDevice, type Pd } from '../verbs/index.ts';
import { checkRange, type DmaBuffer, LocalBuffer, RemoteBuffer } from './buffer.ts';
import { Engine } from './engine.ts';
import { meet } from './handshake.ts';
import { checkNodeId, IdSource } from './ids.ts';
import { TransferNode } from './node.ts';
import { isBufferName, MAX_BUFFERS } from './protocol.ts';
import { type OnTransfer, Transfer, type TransferState, TransferTable } from './transfer.ts';
import { TransferError } from './transfer-error.ts';

export interface LibraryOptions {
  /** Of this node, 1 to 2^20-1; no other node of the cluster may have it. */
  readonly nodeId: number;
  /** The RDMA device, or its name. A device that is given open is not closed with the library. */
  readonly device: string | Device;
  /**
   * Where other nodes may connect. Whoever reaches this address may use all buffers: keep it on a
   * trusted network.
   */
  readonly listen?: { readonly host?: string; readonly port?: number };
  /** How long a node may take to give back a buffer that is freed, before it is cut off. */
  readonly freeTimeoutMs?: number;
}

export interface TransferRequest {
  readonly from: DmaBuffer;
  readonly to: DmaBuffer;
  readonly fromOffset?: number;
  readonly toOffset?: number;
  readonly sizeBytes: number;
  /** Called once, when the transfer has ended. Without it, the program polls. */
  readonly onEnd?: OnTransfer;
}

export interface NodeAddress {
  readonly host: string;
  readonly port: number;
}

const MAX_NODES = 256;
/** Connections whose node is not known yet. */
const MAX_WAITING = 32;
const CONNECT_MS = 10_000;
const everything = access.localWrite | access.remoteWrite | access.remoteRead;

export class TransferLibrary implements AsyncDisposable {
  readonly nodeId: number;
  readonly #device: Device;
  readonly #pd: Pd;
  readonly #channel: CompletionChannel;
  readonly #server: Server | undefined;
  readonly #freeTimeoutMs: number;
  readonly #undo: DisposableStack;
  readonly #bufferIds: IdSource;
  readonly #transferIds: IdSource;
  readonly #nodes = new Map<number, TransferNode>();
  readonly #buffers = new Map<number, LocalBuffer>();
  readonly #transfers = new TransferTable();
  readonly #closing = new AbortController();
  readonly #room = new WaitingRoom({ maxWaiting: MAX_WAITING, helloMs: CONNECT_MS });

  /** Initialises: opens the device, and listens for other nodes. */
  static async open(options: LibraryOptions): Promise<TransferLibrary> {
    checkNodeId(options.nodeId);
    const { listen } = options;
    using undo = new DisposableStack();
    const server = listen === undefined ? undefined : undo.adopt(createServer(), (each) => void each.close());
    if (server !== undefined && listen !== undefined) {
      server.listen(listen.port ?? 0, listen.host ?? '127.0.0.1');
      await once(server, 'listening');
    }
    const library = new TransferLibrary(options, server, undo);
    return library;
  }

  private constructor(options: LibraryOptions, server: Server | undefined, undo: DisposableStack) {
    const { nodeId, device, freeTimeoutMs = 5000 } = options;
    this.#device = typeof device === 'string' ? undo.use(openDevice(device)) : device;
    this.#pd = undo.use(this.#device.createPd());
    this.#channel = undo.use(this.#device.createChannel());
    this.nodeId = nodeId;
    this.#freeTimeoutMs = freeTimeoutMs;
    this.#bufferIds = new IdSource(nodeId);
    this.#transferIds = new IdSource(nodeId);
    this.#server = server;
    server?.on('connection', (socket) => this.#accept(socket));
    this.#undo = undo.move();
  }

  /** Where other nodes connect to this one. */
  get address(): NodeAddress | undefined {
    const address = this.#server?.address() as AddressInfo | string | null | undefined;
    return typeof address === 'object' && address !== null ? { host: address.address, port: address.port } : undefined;
  }

  get nodes(): readonly TransferNode[] {
    return [...this.#nodes.values()];
  }

  /** Buffers of this node. */
  get buffers(): readonly LocalBuffer[] {
    return [...this.#buffers.values()];
  }

  /** Connects to another node. One of the two does it. */
  async connect(address: NodeAddress, options: { readonly signal?: AbortSignal } = {}): Promise<TransferNode> {
    this.#checkOpen();
    const signals = [
      this.#closing.signal,
      AbortSignal.timeout(CONNECT_MS),
      ...(options.signal ? [options.signal] : []),
    ];
    const signal = AbortSignal.any(signals);
    const socket = connectTo(address);
    try {
      await once(socket, 'connect', { signal });
      return await this.#connectNode(socket, signal);
    } catch (error) {
      socket.destroySoon();
      const reason = error instanceof Error ? error.message : String(error);
      const where = `connect to the node at ${address.host}:${address.port}`;
      throw new MillraceError('MILLRACE_ERR_FAILED', `${where}: ${reason}`, { cause: error });
    }
  }

  /** Memory that all connected nodes can transfer to and from; each of them gets an offer of it. */
  allocate(options: { readonly sizeBytes: number; readonly name?: string }): LocalBuffer {
    this.#checkOpen();
    const { sizeBytes, name } = options;
    if (name !== undefined && !isBufferName(name)) {
      throw new UsageError(`allocate a buffer: the name ${JSON.stringify(name)} is not 1 to 64 printable characters`);
    }
    if (this.#buffers.size >= MAX_BUFFERS) throw new UsageError(`allocate a buffer: this node has ${MAX_BUFFERS}`);
    const mr = this.#pd.allocate({ sizeBytes, access: everything });
    const ids = { id: this.#bufferIds.next(), name, nodeId: this.nodeId };
    const buffer = new LocalBuffer(ids, mr, (each) => this.#free(each));
    this.#buffers.set(buffer.id, buffer);
    for (const node of this.nodes) node.offer(buffer);
    return buffer;
  }

  /**
   * Starts a transfer between two buffers, one of them of this node, and returns its id at once.
   * Never blocks.
   */
  start(request: TransferRequest): number {
    this.#checkOpen();
    const { from, to, fromOffset = 0, toOffset = 0, sizeBytes, onEnd } = request;
    const attempt = `transfer from buffer ${from.id} to buffer ${to.id}`;
    const most = this.#device.attributes.maxMessageBytes;
    if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 1 || sizeBytes > most) {
      throw new UsageError(`${attempt}: ${sizeBytes} bytes; expected 1 to ${most}`);
    }
    checkRange(attempt, from, fromOffset, sizeBytes);
    checkRange(attempt, to, toOffset, sizeBytes);
    const isWrite = this.#isOwn(from);
    const local = isWrite ? from : to;
    const remote = isWrite ? to : from;
    if (!this.#isOwn(local)) throw new UsageError(`${attempt}: neither is a buffer of this node`);
    if (!(remote instanceof RemoteBuffer) && !this.#isOwn(remote)) {
      throw new UsageError(`${attempt}: buffer ${remote.id} is of another library`);
    }
    const [localOffset, remoteOffset] = isWrite ? [fromOffset, toOffset] : [toOffset, fromOffset];
    const direction = this.#isOwn(remote) ? 'copy' : isWrite ? 'write' : 'read';
    const id = this.#transferIds.next();
    const parts = { id, direction, local, localOffset, remote, remoteOffset, sizeBytes, onEnd } as const;
    const engine = remote instanceof RemoteBuffer ? this.#engineOf(attempt, remote) : undefined;
    const transfer = new Transfer(parts);
    this.#transfers.add(transfer);
    if (engine !== undefined) engine.start(transfer);
    else this.#copy(transfer);
    return id;
  }

  /**
   * Its state after polling the CQ once. A transfer without a callback makes progress only by this.
   */
  poll(id: number): TransferState {
    const transfer = this.transfer(id);
    if (!transfer.hasEnded) this.#nodes.get(transfer.remote.nodeId)?.engine.poll();
    return transfer.state;
  }

  /** Resolves when it is done, rejects with a TransferError when it failed. */
  ended(id: number): Promise<void> {
    const transfer = this.transfer(id);
    const ended = transfer.ended();
    this.#nodes.get(transfer.remote.nodeId)?.engine.awaitEnd(transfer);
    return ended;
  }

  /** By id; the last `REMEMBERED_TRANSFERS` that have ended are remembered. */
  transfer(id: number): Transfer {
    const transfer = this.#transfers.find(id);
    if (transfer === undefined)
      throw new UsageError(`transfer ${id} is unknown: it is not of this node, or it ended long ago`);
    return transfer;
  }

  /** By id, here or at a connected node. */
  buffer(id: number): DmaBuffer | undefined {
    return this.#buffers.get(id) ?? this.nodes.map((node) => node.buffer(id)).find((buffer) => buffer !== undefined);
  }

  node(id: number): TransferNode | undefined {
    return this.#nodes.get(id);
  }

  /** Cleans up: transfers under way fail, buffers and connections go. Closing twice is harmless. */
  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort(new TransferError('closed', 0, `node ${this.nodeId} is closed`));
    for (const node of this.nodes) node.close('this node is closing');
    for (const buffer of this.#buffers.values()) buffer.mr.close();
    this.#buffers.clear();
    const closed = this.#server === undefined ? undefined : once(this.#server, 'close');
    this.#undo.dispose();
    await closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #accept(socket: Socket): void {
    const late = new AbortController();
    const guest = this.#room.enter((reason) => late.abort(new TransferError('closed', 0, reason)));
    if (guest === undefined) {
      socket.destroy();
      return;
    }
    const signal = AbortSignal.any([this.#closing.signal, late.signal]);
    this.#connectNode(socket, signal).then(
      () => guest.leave(),
      () => {
        guest.leave();
        // The peer was told why, and nobody here waits for the result.
        socket.destroySoon();
      },
    );
  }

  async #connectNode(socket: Socket, signal: AbortSignal): Promise<TransferNode> {
    socket.setNoDelay(true);
    socket.setKeepAlive(true, 5000);
    let node: TransferNode | undefined;
    using undo = new DisposableStack();
    const engine = undo.use(
      new Engine(this.#device, this.#pd, this.#channel, {
        onEnd: (transfer) => this.#transfers.remember(transfer),
        onBroken: (reason) => node?.close(reason),
      }),
    );
    const objection = (id: number): string | undefined => this.#objection(id);
    const id = await meet(socket, { ownId: this.nodeId, qp: engine.qp, signal, objection });
    signal.throwIfAborted();
    node = new TransferNode(id, socket, engine, (gone) => void this.#nodes.delete(gone.id));
    undo.move();
    this.#nodes.set(id, node);
    for (const buffer of this.#buffers.values()) if (!buffer.isFreed) node.offer(buffer);
    return node;
  }

  #objection(id: number): string | undefined {
    if (id === this.nodeId) return `both nodes have the id ${id}`;
    if (this.#nodes.has(id)) return `node ${id} is connected already`;
    return this.#nodes.size >= MAX_NODES ? `there are ${MAX_NODES} nodes already` : undefined;
  }

  #isOwn(buffer: DmaBuffer): buffer is LocalBuffer {
    return buffer instanceof LocalBuffer && this.#buffers.get(buffer.id) === buffer;
  }

  #engineOf(attempt: string, remote: RemoteBuffer): Engine {
    const node = this.#nodes.get(remote.nodeId);
    if (node?.buffer(remote.id) !== remote) throw new UsageError(`${attempt}: buffer ${remote.id} is not known here`);
    return node.engine;
  }

  /** Both buffers are of this node, so no device is needed. */
  #copy(transfer: Transfer): void {
    const { local, remote, localOffset, remoteOffset, sizeBytes } = transfer;
    if (remote instanceof LocalBuffer) {
      const [from, to] = [local.mr, remote.mr];
      copyMemory(to.memory, to.offset + remoteOffset, from.memory, from.offset + localOffset, sizeBytes);
    }
    transfer.state = 'active';
    // The program gets the id before its callback is called.
    queueMicrotask(() => {
      this.#transfers.remember(transfer);
      transfer.end();
    });
  }

  async #free(buffer: LocalBuffer): Promise<void> {
    const { nodes } = this;
    const given = nodes.map((node) => node.takeBack(buffer, this.#freeTimeoutMs));
    // The engine of each node ends its own transfers; `uses` counts those of all nodes.
    await Promise.all([...given, ...nodes.map((node) => node.engine.settle(buffer.uses))]);
    await buffer.uses.idle();
    this.#buffers.delete(buffer.id);
    buffer.mr.close();
  }

  #checkOpen(): void {
    this.#closing.signal.throwIfAborted();
  }
}
