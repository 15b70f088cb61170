// A protection domain: objects of one domain can only be used with each other.

import { UsageError } from '../errors.ts';
import { SharedMemory } from '../native/index.ts';
import { access, accessProblem } from './access.ts';
import { Ah } from './ah.ts';
import type { Device } from './device.ts';
import { checkCount } from './limits.ts';
import { Mr } from './mr.ts';
import { VerbsObject } from './object.ts';
import type { ProviderPd } from './provider.ts';
import { Qp, type QpOptions, qpSpec } from './qp.ts';
import { checkPath, type PathTo } from './qp-state.ts';
import { Srq, type SrqOptions } from './srq.ts';

export interface AllocateOptions {
  readonly sizeBytes: number;
  readonly access?: number;
  readonly hugePages?: boolean;
}

export interface RegisterOptions {
  readonly offset?: number;
  /** Default: to the end of the memory. */
  readonly sizeBytes?: number;
  readonly access?: number;
}

export class Pd extends VerbsObject {
  readonly device: Device;
  readonly #pd: ProviderPd;

  constructor(device: Device, pd: ProviderPd) {
    super([device]);
    this.device = device;
    this.#pd = pd;
  }

  /**
   * Memory of its own, registered as a whole: the kind that every wire moves fastest. Closing the
   * region frees it.
   */
  allocate(options: AllocateOptions): Mr {
    this.checkOpen();
    const { sizeBytes, access: flags = access.localWrite, hugePages = false } = options;
    using undo = new DisposableStack();
    checkCount('bytes of a region', sizeBytes, 1, this.device.attributes.maxMrBytes);
    const memory = undo.use(
      this.#pd.allocate?.({ sizeBytes, hugePages }) ?? SharedMemory.create({ sizeBytes, hugePages, name: 'mr' }),
    );
    const mr = this.#register(memory, 0, sizeBytes, flags, true);
    undo.move();
    return mr;
  }

  /** Registers memory that the program owns, or a part of it. */
  register(memory: SharedMemory, options: RegisterOptions = {}): Mr {
    this.checkOpen();
    const { offset = 0, sizeBytes = memory.sizeBytes - offset, access: flags = access.localWrite } = options;
    return this.#register(memory, offset, sizeBytes, flags, false);
  }

  createSrq(options: SrqOptions = {}): Srq {
    this.checkOpen();
    const { requests = 256, maxSge = 4 } = options;
    const limits = this.device.attributes;
    checkCount('receives of an SRQ', requests, 1, limits.maxSrqRequests);
    checkCount('scatter-gather entries', maxSge, 1, limits.maxSge);
    return new Srq(this, this.#pd.createSrq({ requests, maxSge }));
  }

  createQp(options: QpOptions): Qp {
    this.checkOpen();
    if (options.srq !== undefined && options.srq.pd !== this) {
      throw new UsageError('a QP and its SRQ must be of the same protection domain');
    }
    const spec = qpSpec(options, this.device.attributes);
    return new Qp(this, this.#pd.createQp(spec), options, spec);
  }

  /** Where datagrams of UD queue pairs may go. */
  createAh(path: PathTo): Ah {
    this.checkOpen();
    checkPath('create an address handle', path);
    return new Ah(this, this.#pd.createAh(path));
  }

  protected override release(): void {
    this.#pd.close();
  }

  #register(memory: SharedMemory, offset: number, sizeBytes: number, flags: number, isOwner: boolean): Mr {
    const problem = accessProblem(flags);
    const attempt = `register ${sizeBytes} bytes at ${offset}`;
    if (problem !== undefined) throw new UsageError(`${attempt}: ${problem}`);
    if (memory.isClosed) throw new UsageError(`${attempt}: the memory is closed`);
    const isInside =
      Number.isSafeInteger(offset) &&
      offset >= 0 &&
      Number.isSafeInteger(sizeBytes) &&
      sizeBytes > 0 &&
      offset + sizeBytes <= memory.sizeBytes;
    if (!isInside) throw new UsageError(`${attempt}: the memory has ${memory.sizeBytes}`);
    checkCount('bytes of a region', sizeBytes, 1, this.device.attributes.maxMrBytes);
    const spec = { memory, offset, sizeBytes, access: flags };
    return new Mr(this, this.#pd.registerMr(spec), spec, isOwner);
  }
}
