// How many connections without a slot each program has offered, and each user's programs together.

interface Owner {
  readonly id: number;
  readonly uid: number;
}

export class OfferCounts {
  readonly #programs = new Map<number, number>();
  readonly #users = new Map<number, number>();

  of({ id, uid }: Owner): { readonly ofProgram: number; readonly ofUser: number } {
    return { ofProgram: this.#programs.get(id) ?? 0, ofUser: this.#users.get(uid) ?? 0 };
  }

  add({ id, uid }: Owner): void {
    change(this.#programs, id, 1);
    change(this.#users, uid, 1);
  }

  remove({ id, uid }: Owner): void {
    change(this.#programs, id, -1);
    change(this.#users, uid, -1);
  }
}

/** Those that come to 0 take no place. */
function change(counts: Map<number, number>, key: number, by: number): void {
  const count = (counts.get(key) ?? 0) + by;
  if (count === 0) counts.delete(key);
  else counts.set(key, count);
}
