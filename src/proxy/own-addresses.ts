// All addresses of this host and of its containers, by which peers know its programs.

export class OwnAddresses {
  readonly #tell: (hosts: readonly string[]) => Promise<void>;
  readonly #parts = { host: [] as readonly string[], namespaces: [] as readonly string[] };

  /** `tell` resolves when peers know them. */
  constructor(tell: (hosts: readonly string[]) => Promise<void>) {
    this.#tell = tell;
  }

  /** Resolves when peers know them. */
  set(part: 'host' | 'namespaces', hosts: readonly string[]): Promise<void> {
    this.#parts[part] = hosts;
    return this.#tell([...this.#parts.host, ...this.#parts.namespaces]);
  }
}
