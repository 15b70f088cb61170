// The network namespaces in which a lane opens sockets, by their cookies.

import { type Family, Fd, inNetns, netnsCookie, Socket } from '../native/index.ts';

export class LaneNamespaces implements Disposable {
  readonly #own = netnsCookie();
  readonly #others = new Map<number, Fd>();

  /** `fd` stands for it, and stays open only until this returns. */
  add(netns: number, fd: number): void {
    this.remove(netns);
    this.#others.set(netns, Fd.duplicateOf(fd));
  }

  remove(netns: number): void {
    this.#others.get(netns)?.close();
    this.#others.delete(netns);
  }

  /** Runs `work` there; undefined when it is not known. */
  in<T>(netns: number, work: () => T): T | undefined {
    if (netns === this.#own) return work();
    const namespace = this.#others.get(netns);
    return namespace === undefined ? undefined : inNetns(namespace, work);
  }

  /** A stream socket there; undefined when the namespace is not known. */
  stream(netns: number, family: Family): Socket | undefined {
    return this.in(netns, () => Socket.stream(family));
  }

  [Symbol.dispose](): void {
    for (const netns of this.#others.keys()) this.remove(netns);
  }
}
