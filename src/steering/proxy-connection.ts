// A proxy socket that stands for the other end of a program's connection: what the program sends is
// received here, and what is sent here the program receives.

import type { Address, BpfObject, SharedMemory, Socket } from '../native/index.ts';
import {
  PROXY_REQUEST_BYTES,
  type ProxyRequest,
  proxyRequestKinds,
  readProxyRequest,
  writeProxyRequest,
} from './layouts.ts';

/** Asks the BPF programs about a proxy socket; undefined when the program's socket is gone. */
export function askProxy(
  object: BpfObject,
  proxy: number,
  kind: keyof typeof proxyRequestKinds,
  bytes = 0,
): ProxyRequest | undefined {
  const context = new Uint8Array(PROXY_REQUEST_BYTES);
  const view = new DataView(context.buffer);
  writeProxyRequest(view, 0, { proxy, kind: proxyRequestKinds[kind], bytes, queued: 0 });
  return object.run('skmsg_ask', context) === 0 ? readProxyRequest(view, 0) : undefined;
}

export interface ProxyConnectionSpec {
  readonly proxy: number;
  readonly socket: Socket;
  /** Of the program's socket, as the program sees them. */
  readonly local: Address;
  readonly remote: Address;
  /** The program connected; else it accepted. */
  readonly isClient: boolean;
  /** How many bytes may wait for the program to read them. */
  readonly creditBytes: number;
}

export class ProxyConnection implements Disposable {
  readonly spec: ProxyConnectionSpec;
  /** Called once, when the program's socket is gone. What it sent before can still be received. */
  onProgramGone: () => void = () => {};
  readonly #object: BpfObject;
  readonly #release: () => void;
  #deliveredBytes = 0;
  #isClosed = false;

  constructor(object: BpfObject, spec: ProxyConnectionSpec, release: () => void) {
    this.#object = object;
    this.spec = spec;
    this.#release = release;
  }

  get fd(): number {
    return this.spec.socket.fd;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /**
   * How much may be sent now; the kernel itself would take everything. Undefined when the program
   * is gone.
   */
  roomBytes(): number | undefined {
    const seen = askProxy(this.#object, this.spec.proxy, 'read');
    return seen && Math.max(0, this.spec.creditBytes - seen.queued);
  }

  receive(memory: SharedMemory, offset: number, length: number): number {
    return this.spec.socket.receive(memory, offset, length);
  }

  send(memory: SharedMemory, offset: number, length: number): number {
    return this.spec.socket.send(memory, offset, length);
  }

  /** So many more bytes of this program were delivered. Its FIN is held until all of them are. */
  delivered(bytes: number): void {
    this.#deliveredBytes += bytes;
    askProxy(this.#object, this.spec.proxy, 'delivered', this.#deliveredBytes);
  }

  /** If the program is still there, its next send fails. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#release();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
