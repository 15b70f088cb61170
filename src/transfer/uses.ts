// How many transfers use a buffer now, and when there are none.

export class Uses {
  #count = 0;
  #idle: PromiseWithResolvers<void> | undefined;

  get count(): number {
    return this.#count;
  }

  add(): void {
    this.#count++;
  }

  release(): void {
    this.#count--;
    if (this.#count > 0) return;
    this.#idle?.resolve();
    this.#idle = undefined;
  }

  /** Resolves when the count is 0, which may be now. */
  idle(): Promise<void> {
    if (this.#count === 0) return Promise.resolve();
    this.#idle ??= Promise.withResolvers();
    return this.#idle.promise;
  }
}
