// BPF objects that are loaded into the kernel: their programs, maps and links, and the lifetime of
// all of them.

import { readSync } from 'node:fs';
import { constants } from 'node:os';
import { MillraceError, UsageError } from '../errors.ts';
import { addon, type BpfHandle } from './addon.ts';
import { BpfError, nameableErrno, requireLibbpf } from './bpf-error.ts';
import { BpfMap } from './bpf-map.ts';
import { Fd } from './fd.ts';
import { check } from './result.ts';

/** As much as the kernel gives at once. */
const ITERATOR_READ_BYTES = 32 * 1024;

export interface BpfLoadOptions {
  /**
   * For messages, and the prefix libbpf gives to the maps of global variables. At most 63 bytes.
   */
  readonly name: string;
  /** Which programs to load. Default: all. */
  readonly programs?: readonly string[];
  /** Which maps to create. Default: all. A loaded program may use only these. */
  readonly maps?: readonly string[];
}

interface BpfNames {
  readonly programs: readonly string[];
  readonly maps: readonly string[];
}

/** Something that is attached for as long as it is open. */
export interface BpfAttachment extends Disposable {
  readonly isClosed: boolean;
  close(): void;
}

/**
 * A link: closing it detaches the program. The kernel does so too when its last descriptor goes,
 * however that happens.
 */
export class BpfLink extends Fd implements BpfAttachment {}

/** A program that is run for each entry of a map when it is read. */
export class BpfIterator extends BpfLink {
  /** Runs it: what the program wrote for all entries that there are now. */
  read(): Uint8Array {
    using run = new Fd(check(nameableErrno(addon.bpfIterCreate(this.fd)), 'bpf_iter_create'));
    const parts: Uint8Array[] = [];
    for (;;) {
      const part = new Uint8Array(ITERATOR_READ_BYTES);
      const size = readSync(run.fd, part);
      if (size === 0) return Buffer.concat(parts);
      parts.push(part.subarray(0, size));
    }
  }
}

/**
 * A program set on a map by kernels that have no links for that. It stays until closed or until the
 * map is gone.
 */
class MapAttachment implements BpfAttachment {
  #detach: (() => void) | null;

  constructor(detach: () => void) {
    this.#detach = detach;
  }

  get isClosed(): boolean {
    return this.#detach === null;
  }

  close(): void {
    this.#detach?.();
    this.#detach = null;
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/**
 * Programs and maps in the kernel. Load only what was built with this package: libbpf refuses what
 * is no object or is cut short, but it does not survive every object with damage inside.
 *
 * The descriptors it gives out are its own: they are good until it closes, unless duplicated.
 * Closing it closes what was attached through it first.
 */
export class BpfObject implements Disposable {
  readonly name: string;
  readonly programs: readonly string[];
  readonly maps: readonly string[];
  #handle: BpfHandle | null;
  readonly #programFds = new Map<string, Fd>();
  readonly #mapFds = new Map<string, Fd>();
  readonly #attachments = new Set<BpfAttachment>();

  /** Loads all that is chosen, or throws and leaves nothing behind. */
  static load(bytes: Uint8Array, options: BpfLoadOptions): BpfObject {
    const handle = open(bytes, options.name);
    try {
      const programs = choose('program', addon.bpfPrograms(handle), options.programs, options.name);
      const maps = choose('map', addon.bpfMaps(handle), options.maps, options.name);
      for (const { name, isWanted } of programs) check(addon.bpfChooseProgram(handle, name, isWanted), 'choose', name);
      for (const { name, isWanted } of maps) check(addon.bpfChooseMap(handle, name, isWanted), 'choose', name);
      const loaded = { programs: wanted(programs), maps: wanted(maps) };
      const [result, log] = addon.bpfLoad(handle);
      if (result < 0) {
        const what = `${options.name}: ${[...loaded.programs, ...loaded.maps].join(', ')}`;
        throw new BpfError(result, 'load BPF', what, log);
      }
      return new BpfObject(handle, options.name, loaded);
    } catch (error) {
      addon.bpfClose(handle);
      throw error;
    }
  }

  private constructor(handle: BpfHandle, name: string, loaded: BpfNames) {
    this.#handle = handle;
    this.name = name;
    this.programs = loaded.programs;
    this.maps = loaded.maps;
  }

  get isClosed(): boolean {
    return this.#handle === null;
  }

  programFd(name: string): number {
    return this.#fd(this.#programFds, 'program', this.programs, name, (handle) => addon.bpfProgramFd(handle, name));
  }

  mapFd(name: string): number {
    return this.#fd(this.#mapFds, 'map', this.maps, name, (handle) => addon.bpfMapFd(handle, name));
  }

  /** A map with a life of its own. */
  openMap(name: string): BpfMap {
    return new BpfMap(check(addon.dup(this.mapFd(name)), 'dup', `map ${name}`));
  }

  /**
   * Attaches by a link to what the program's section says: `target` is a cgroup's descriptor, say.
   */
  attach(program: string, target: number): BpfLink {
    const fd = this.programFd(program);
    const link = addon.bpfLinkCreate(fd, target, this.#attachType(program));
    return this.#keep(new BpfLink(check(nameableErrno(link), 'bpf_link_create', `${program} to descriptor ${target}`)));
  }

  /** Attaches an sk_msg or sk_skb program to a sockmap or sockhash of this object. */
  attachToMap(program: string, map: string): BpfAttachment {
    const [programFd, mapFd, type] = [this.programFd(program), this.mapFd(map), this.#attachType(program)];
    const link = addon.bpfLinkCreate(programFd, mapFd, type);
    if (link >= 0) return this.#keep(new BpfLink(link));
    // Before 6.10 the kernel had no links on sockmaps, and says so by EINVAL.
    if (link !== -constants.errno.EINVAL) check(nameableErrno(link), 'bpf_link_create', `${program} to map ${map}`);
    check(nameableErrno(addon.bpfProgAttach(programFd, mapFd, type)), 'bpf_prog_attach', `${program} to map ${map}`);
    return this.#keep(new MapAttachment(() => addon.bpfProgDetach(programFd, mapFd, type)));
  }

  /** Attaches an iterator's program to a map of this object. */
  iterate(program: string, map: string): BpfIterator {
    const link = addon.bpfLinkIterator(this.programFd(program), this.mapFd(map));
    return this.#keep(new BpfIterator(check(nameableErrno(link), 'bpf_link_create', `${program} over map ${map}`)));
  }

  /**
   * Runs a `syscall` program here and now; it may change `context`. Returns what the program
   * returns.
   */
  run(program: string, context: Uint8Array = new Uint8Array(0)): number {
    return check(nameableErrno(addon.bpfProgRun(this.programFd(program), context)), 'bpf_prog_run', program);
  }

  close(): void {
    if (this.#handle === null) return;
    for (const child of [...this.#attachments, ...this.#programFds.values(), ...this.#mapFds.values()]) child.close();
    addon.bpfClose(this.#handle);
    this.#handle = null;
  }

  [Symbol.dispose](): void {
    this.close();
  }

  get #open(): BpfHandle {
    if (this.#handle === null) throw new MillraceError('MILLRACE_ERR_CLOSED', `BPF object ${this.name} is closed`);
    return this.#handle;
  }

  #attachType(program: string): number {
    return check(addon.bpfAttachType(this.#open, program), 'attach type', program);
  }

  #fd(
    cache: Map<string, Fd>,
    kind: string,
    known: readonly string[],
    name: string,
    duplicate: (handle: BpfHandle) => number,
  ): number {
    const handle = this.#open;
    const cached = cache.get(name);
    if (cached !== undefined) return cached.fd;
    if (!known.includes(name)) throw unknownName(kind, name, known, this.name);
    const fd = new Fd(check(duplicate(handle), 'dup', `${kind} ${name}`));
    cache.set(name, fd);
    return fd.fd;
  }

  #keep<T extends BpfAttachment>(attachment: T): T {
    for (const old of this.#attachments) if (old.isClosed) this.#attachments.delete(old);
    this.#attachments.add(attachment);
    return attachment;
  }
}

interface Choice {
  readonly name: string;
  readonly isWanted: boolean;
}

function choose(kind: string, known: readonly string[], chosen = known, object: string): readonly Choice[] {
  for (const name of chosen) if (!known.includes(name)) throw unknownName(kind, name, known, object);
  return known.map((name) => ({ name, isWanted: chosen.includes(name) }));
}

function wanted(choices: readonly Choice[]): readonly string[] {
  return choices.filter((choice) => choice.isWanted).map((choice) => choice.name);
}

function unknownName(kind: string, name: string, known: readonly string[], object: string): UsageError {
  const list = known.length === 0 ? 'none' : known.join(', ');
  return new UsageError(`BPF object ${object} has no ${kind} ${JSON.stringify(name)} here; it has: ${list}`);
}

function open(bytes: Uint8Array, name: string): BpfHandle {
  requireLibbpf(`open BPF object ${name}`);
  const opened = addon.bpfOpen(bytes, name);
  if (Array.isArray(opened)) throw new BpfError(opened[0], 'open BPF', `${name}, ${bytes.length} bytes`, opened[1]);
  return opened;
}
