// A running QEMU with the agent in it, and what is kept of them when something fails. Programs use
// `Guest`.

import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { MillraceError } from '../../errors.ts';
import { makeFolder } from '../../system/index.ts';
import { accelerator } from './accelerator.ts';
import { AgentClient } from './agent-client.ts';
import type { Capture } from './capture.ts';
import type { ReadyMessage } from './frames.ts';
import type { Image } from './image.ts';
import { emptyFolders, kernelArguments } from './init.ts';
import type { Link } from './link.ts';
import { type QemuExit, QemuProcess } from './process.ts';
import { agentFd, type Nic, qemuArguments, type Sharing } from './qemu.ts';
import type { GuestSpec, SharingOptions } from './spec.ts';

/** A boot usually takes five seconds; on a busy machine it takes several times that. */
const bootTimeoutMs = 120_000;
const shownConsoleLines = 25;
const packageRoot = join(import.meta.dirname, '../../..');

/** Owns QEMU, not its link and capture. */
export class Machine implements AsyncDisposable {
  readonly agent: AgentClient;
  readonly qemu: QemuProcess;
  readonly #spec: GuestSpec;
  readonly #capture: Capture | null;
  readonly #limit: NodeJS.Timeout;
  /** With time, name and process id, so that the files of several failures are kept. */
  readonly #evidenceName: string;

  constructor(spec: GuestSpec, image: Image, link: Link | null, capture: Capture | null) {
    this.#spec = spec;
    this.#capture = capture;
    this.#evidenceName = `${new Date().toISOString().replaceAll(':', '-')}-${spec.name}-${process.pid}`;
    const nic = link === null ? undefined : nicOf(link, capture);
    const { sharing } = spec;
    const cardFds = [capture?.fd, link?.fd].filter((fd) => fd != null);
    const args = qemuArguments({
      ...spec,
      ...image,
      accelerator: accelerator(),
      kernelArguments: kernelArguments({ ...spec, node: process.execPath, keep: keptPaths(spec.share) }),
      nic,
      sharing: sharing && inQemu(sharing, agentFd + 1 + cardFds.length),
      extra: spec.qemuArguments,
    });
    const host = link?.host ?? null;
    const fds = [...cardFds, ...(sharing === undefined ? [] : sharedFds(sharing))];
    this.qemu = new QemuProcess(args, fds, host === null ? undefined : (...words) => host.spawn(...words));
    this.agent = new AgentClient(this.qemu.agentStream, spec.name);
    void this.qemu.exited.then((exit) => this.agent.fail(this.#died(exit)));
    this.#limit = setTimeout(() => this.end(this.#error(`it reached its limit of ${spec.limitMs} ms`)), spec.limitMs);
  }

  /** Settles when commands can be run. */
  async ready(): Promise<ReadyMessage> {
    const timer = setTimeout(() => {
      this.end(this.#error(`it did not boot within ${bootTimeoutMs} ms${this.qemu.console.lines(shownConsoleLines)}`));
    }, bootTimeoutMs);
    try {
      const message = await this.agent.ready;
      if (message.problems !== '') throw this.#error(`it could not be set up completely: ${message.problems}`);
      return message;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Commands that run end with `reason`. */
  end(reason: Error): void {
    this.agent.fail(reason);
    void this.qemu.kill();
  }

  /** Saves capture and console as files and returns their paths. */
  keepEvidence(): readonly string[] {
    const base = join(this.#spec.failureDir, this.#evidenceName);
    makeFolder(dirname(base));
    writeFileSync(`${base}.console.txt`, `${this.qemu.console.text}${this.qemu.complaints.text}`);
    if (this.#capture === null) return [`${base}.console.txt`];
    this.#capture.save(`${base}.pcap`);
    return [`${base}.console.txt`, `${base}.pcap`];
  }

  get name(): string {
    return this.#spec.name;
  }

  /** The saved files as the end of an error message; empty when none could be saved. */
  evidenceText(): string {
    try {
      const paths = this.keepEvidence().map((path) => relative(process.cwd(), path));
      return `\nkept: ${paths.join(', ')}`;
    } catch {
      return '';
    }
  }

  async close(): Promise<void> {
    clearTimeout(this.#limit);
    this.agent.fail(new MillraceError('MILLRACE_ERR_CLOSED', `guest ${this.#spec.name} is closed`));
    await this.qemu.kill();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #died({ code, signal }: QemuExit): MillraceError {
    const { complaints, console: serial } = this.qemu;
    const panic = serial.panic;
    const how = panic === null ? `QEMU ended with ${signal ?? `status ${code}`}` : `its kernel stopped: ${panic}`;
    return this.#error(`${how}${complaints.lines(shownConsoleLines)}${serial.lines(shownConsoleLines)}`);
  }

  #error(reason: string): MillraceError {
    return new MillraceError('MILLRACE_ERR_FAILED', `guest ${this.#spec.name}: ${reason}`);
  }
}

/** In QEMU, the capture has the descriptor after the agent's, and the cable the one after that. */
function nicOf(link: Link, capture: Capture | null): Nic {
  const next = agentFd + 1;
  return {
    backend: link.backend(capture === null ? next : next + 1),
    // The second-lowest bit of the first byte marks a locally administered address.
    mac: `52:54:00${randomBytes(3).toString('hex').replaceAll(/../g, ':$&')}`,
    ...(capture === null ? {} : { captureFile: `/dev/fd/${next}` }),
  };
}

/** In the order in which QEMU inherits them. */
function sharedFds({ memory, ports, monitorFd }: SharingOptions): readonly number[] {
  return [memory.fd, ...ports.map(({ fd }) => fd), ...(monitorFd === undefined ? [] : [monitorFd])];
}

function inQemu({ memory, ports, monitorFd }: SharingOptions, first: number): Sharing {
  return {
    memory: { ...memory, fd: first },
    ports: ports.map(({ name }, index) => ({ name, fd: first + 1 + index })),
    ...(monitorFd !== undefined && { monitorFd: first + 1 + ports.length }),
  };
}

/**
 * Paths below `emptyFolders` that a guest must see: this package, its Node, and the working
 * directory.
 */
function keptPaths(share: string | undefined): readonly string[] {
  const isBelow = (path: string, folder: string): boolean => path.startsWith(`${folder}/`);
  const wanted = [packageRoot, dirname(process.execPath), process.cwd()].filter(
    (path) => emptyFolders.some((folder) => isBelow(path, folder)) && path !== share,
  );
  const outermost = [...new Set(wanted)].filter((path) => !wanted.some((other) => isBelow(path, other)));
  return outermost;
}
