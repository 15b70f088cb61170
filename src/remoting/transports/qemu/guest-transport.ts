// The guest half of the QEMU transport: maps the shared memory from sysfs and opens a port; it
// needs no kernel module of its own.

import { randomInt } from 'node:crypto';
import {
  closeSync,
  constants,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { MillraceError, UnsupportedError } from '../../../errors.ts';
import { Fd, monotonicNs, Poller, pollEvents, SharedMemory } from '../../../native/index.ts';
import type { GuestTransport, SharedRange } from '../../protocol/index.ts';
import { CALL_AREA_BYTES } from '../../protocol/index.ts';
import { encodeFrame, FrameFinder } from './port-frames.ts';
import { portOf, sliceOf } from './slices.ts';

const DEVICES = '/sys/bus/pci/devices';
const PORTS = '/sys/class/virtio-ports';
/** ivshmem, a PCI device of Red Hat. Its third resource is the memory. */
const VENDOR = '0x1af4';
const DEVICE = '0x1110';
const WELCOME_MS = 30_000;
/** A hello may be read by the thread of a program that has just ended; then it must be repeated. */
const REPEAT_MS = 200;

export class QemuGuest implements GuestTransport {
  readonly callArea: SharedMemory;
  readonly #file: Fd;
  readonly #port: number;
  readonly #poller: Poller;
  readonly #resources: DisposableStack;
  readonly #ends = new FrameFinder('end');
  readonly #nonce: number;
  readonly #bytes = Buffer.alloc(4096);
  readonly #doorbell = encodeFrame('doorbell', 0);
  #isAlive = true;

  /** Blocks until the host has answered. */
  static connect(): QemuGuest {
    using undo = new DisposableStack();
    return new QemuGuest(undo);
  }

  private constructor(undo: DisposableStack) {
    const { file, sizeBytes } = openMemory();
    this.#file = undo.use(file);
    const port = openPort();
    this.#port = undo.adopt(port.fd, (fd) => closeSync(fd));
    this.#poller = undo.use(Poller.create(1));
    this.#poller.add(this.#port, pollEvents.in, 0);
    this.#nonce = randomInt(1, 0xffff_ffff);
    this.#hello(port.name);
    const { offset } = sliceOf(sizeBytes, port.index, port.count);
    this.callArea = undo.use(this.map({ id: 0, offset, sizeBytes: CALL_AREA_BYTES }));
    this.#resources = undo.move();
  }

  get fd(): number {
    return this.#poller.fd;
  }

  takeDoorbell(): boolean {
    if (!this.#isAlive || this.#poller.wait(0) === 0) return this.#isAlive;
    const got = this.#read();
    this.#isAlive = got !== undefined && !this.#ends.push(got).includes(this.#nonce);
    return this.#isAlive;
  }

  /**
   * When the port is full, doorbells are in it that the host has not read: one more is not needed.
   */
  ringDoorbell(): void {
    if (this.#isAlive) this.#write(this.#doorbell);
  }

  map({ offset, sizeBytes }: SharedRange): SharedMemory {
    // The memory is the host's, which could end this machine anyway, so its size is trusted.
    return SharedMemory.open(this.#file.duplicate(), { offset, sizeBytes, trusted: true });
  }

  offer(_memory: SharedMemory): SharedRange {
    throw new UnsupportedError(
      'register memory: a virtual machine shares only what was allocated as a region (pd.allocate)',
    );
  }

  close(): void {
    // QEMU tells that a port was closed at most once a second; this frame is faster.
    if (this.#isAlive) this.#write(encodeFrame('end', this.#nonce));
    this.#isAlive = false;
    this.#resources.dispose();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #hello(portName: string): void {
    const hello = encodeFrame('hello', this.#nonce);
    const welcomes = new FrameFinder('welcome');
    const refusals = new FrameFinder('end');
    const endNs = monotonicNs() + WELCOME_MS * 1e6;
    for (;;) {
      this.#write(hello);
      const repeatNs = monotonicNs() + REPEAT_MS * 1e6;
      for (let leftNs = REPEAT_MS * 1e6; leftNs > 0; leftNs = repeatNs - monotonicNs()) {
        if (this.#poller.wait(leftNs) === 0) continue;
        const got = this.#read();
        if (got === undefined) throw noBackend(portName, 'it has gone');
        if (welcomes.push(got).includes(this.#nonce)) return;
        if (refusals.push(got).includes(this.#nonce)) throw noBackend(portName, 'it has no room for another program');
      }
      if (monotonicNs() > endNs) throw noBackend(portName, `nobody answered within ${WELCOME_MS} ms`);
    }
  }

  /** Undefined at the end of the stream. */
  #read(): Uint8Array | undefined {
    try {
      const count = readSync(this.#port, this.#bytes);
      return count === 0 ? undefined : this.#bytes.subarray(0, count);
    } catch (error) {
      return isAgain(error) ? this.#bytes.subarray(0, 0) : undefined;
    }
  }

  #write(bytes: Uint8Array): void {
    try {
      writeSync(this.#port, bytes);
    } catch {
      // Full: the host has doorbells to read. Closed: `takeDoorbell` tells.
    }
  }
}

function openMemory(): { readonly file: Fd; readonly sizeBytes: number } {
  const folder = memoryFolder();
  if (folder === undefined) throw new UnsupportedError('remoting: this machine has no memory shared by QEMU (ivshmem)');
  // No driver has claimed the device, so its memory must be enabled first.
  writeFileSync(join(folder, 'enable'), '1');
  const path = join(folder, 'resource2');
  return { file: Fd.open(path, constants.O_RDWR), sizeBytes: statSync(path).size };
}

function memoryFolder(): string | undefined {
  return entriesOf(DEVICES)
    .map((name) => join(DEVICES, name))
    .find((folder) => wordOf(join(folder, 'vendor')) === VENDOR && wordOf(join(folder, 'device')) === DEVICE);
}

interface Port {
  readonly name: string;
  readonly path: string;
  readonly index: number;
  readonly count: number;
}

function ports(): readonly Port[] {
  return entriesOf(PORTS).flatMap((each) => {
    const name = wordOf(join(PORTS, each, 'name'));
    const port = portOf(name);
    return port === undefined ? [] : [{ name, path: join('/dev', each), ...port }];
  });
}

/** Opens the first port that no other program has opened. */
function openPort(): Port & { readonly fd: number } {
  const all = ports();
  for (const port of all) {
    try {
      return { ...port, fd: openSync(port.path, constants.O_RDWR | constants.O_NONBLOCK) };
    } catch (error) {
      const isBusy = error instanceof Error && 'code' in error && error.code === 'EBUSY';
      if (!isBusy) throw error;
    }
  }
  if (all.length === 0) throw new UnsupportedError('remoting: this machine has no port of a backend (virtio-serial)');
  const what = `all ${all.length} ports of this machine are used by other programs`;
  throw new MillraceError('MILLRACE_ERR_QUOTA', `remoting: ${what}; start it with more`);
}

function entriesOf(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

function wordOf(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
}

function isAgain(error: unknown): boolean {
  return error instanceof Error && 'code' in error && (error.code === 'EAGAIN' || error.code === 'EINTR');
}

function noBackend(portName: string, why: string): MillraceError {
  return new MillraceError(
    'MILLRACE_ERR_NOT_RUNNING',
    `connect to the remoting backend by the port ${portName}: ${why}`,
  );
}
