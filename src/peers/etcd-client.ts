// The calls to etcd that a directory needs; every field of an answer is checked.

import { EtcdError, type EtcdServer, follow, post } from './etcd-http.ts';

export interface EtcdClientOptions extends EtcdServer {
  readonly username?: string;
  readonly password?: string;
}

export interface EtcdEntry {
  readonly key: string;
  readonly value: Buffer;
  /** 64-bit numbers stay text, because nothing is calculated with them. '0' when there is none. */
  readonly lease: string;
  readonly modRevision: string;
}

export interface EtcdEvent extends EtcdEntry {
  readonly isDelete: boolean;
}

/** etcd has compacted the revisions that were asked for: everything must be listed again. */
export class CompactedError extends EtcdError {}

type Fields = Readonly<Record<string, unknown>>;
/** Which state of the key lets the value be put. */
type PutCondition = { readonly absent: true } | { readonly modRevision: string };

export class EtcdClient {
  readonly #options: EtcdClientOptions;
  readonly #signal: AbortSignal;
  #token = '';

  constructor(options: EtcdClientOptions, signal: AbortSignal) {
    this.#options = options;
    this.#signal = signal;
  }

  get endpoint(): string {
    return this.#options.endpoint;
  }

  /** Returns the lease's id. */
  async grantLease(seconds: number): Promise<string> {
    const { ID } = await this.#call('lease/grant', { TTL: String(seconds) });
    return int64(ID);
  }

  /** Whether the lease still exists. */
  async keepLeaseAlive(lease: string): Promise<boolean> {
    const { TTL } = await this.#call('lease/keepalive', { ID: lease });
    return Number(TTL ?? 0) > 0;
  }

  async revokeLease(lease: string): Promise<void> {
    await this.#call('lease/revoke', { ID: lease });
  }

  /**
   * Null when the value was put; otherwise the entry that is there, or undefined when there is
   * none.
   */
  async putIf(
    key: string,
    value: string,
    lease: string,
    condition: PutCondition,
  ): Promise<EtcdEntry | undefined | null> {
    const compare =
      'absent' in condition
        ? { target: 'CREATE', create_revision: '0' }
        : { target: 'MOD', mod_revision: condition.modRevision };
    const answer = await this.#call('kv/txn', {
      compare: [{ key: base64(key), result: 'EQUAL', ...compare }],
      success: [{ request_put: { key: base64(key), value: base64(value), lease } }],
      failure: [{ request_range: { key: base64(key) } }],
    });
    if (answer.succeeded === true) return null;
    const [response] = list(answer.responses);
    return list(fields(response?.response_range).kvs).map(entryOf)[0];
  }

  /** All entries whose keys start with the prefix, at one revision. */
  async list(
    prefix: string,
    limit: number,
  ): Promise<{ readonly entries: readonly EtcdEntry[]; readonly revision: string }> {
    const answer = await this.#call('kv/range', { ...rangeOf(prefix), limit: String(limit) });
    return { entries: list(answer.kvs).map(entryOf), revision: int64(fields(answer.header).revision) };
  }

  /**
   * Changes after a revision, in groups as they happened. The first group is empty: etcd has
   * started to watch.
   */
  async *watch(prefix: string, afterRevision: string, signal: AbortSignal): AsyncGenerator<readonly EtcdEvent[]> {
    const start = String(BigInt(afterRevision) + 1n);
    const body = { create_request: { ...rangeOf(prefix), start_revision: start } };
    for await (const answer of follow(this.#options, 'watch', body, this.#token, signal)) {
      const { canceled, compact_revision, cancel_reason, events } = fields(answer);
      if (compact_revision !== undefined) throw new CompactedError(this.endpoint, 'watch', 'compacted');
      if (canceled === true)
        throw new EtcdError(this.endpoint, 'watch', typeof cancel_reason === 'string' ? cancel_reason : 'cancelled');
      yield list(events).map(eventOf);
    }
    throw new EtcdError(this.endpoint, 'watch', 'the connection ended');
  }

  async #call(path: string, body: object): Promise<Fields> {
    await this.#logIn();
    try {
      return fields(await post(this.#options, path, body, this.#token, this.#signal));
    } catch (error) {
      // Tokens expire after some minutes, and when etcd restarts.
      if (!(error instanceof EtcdError) || error.status !== 401 || this.#token === '') throw error;
      this.#token = '';
      await this.#logIn();
      return fields(await post(this.#options, path, body, this.#token, this.#signal));
    }
  }

  async #logIn(): Promise<void> {
    const { username, password = '' } = this.#options;
    if (username === undefined || this.#token !== '') return;
    const body = { name: username, password };
    const { token } = fields(await post(this.#options, 'auth/authenticate', body, '', this.#signal));
    if (typeof token !== 'string') throw new EtcdError(this.endpoint, 'auth/authenticate', 'no token in the answer');
    this.#token = token;
  }
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64');
}

/** The range of keys that start with the prefix. */
function rangeOf(prefix: string): { readonly key: string; readonly range_end: string } {
  const end = Buffer.from(prefix);
  // A prefix ends with a slash, so its last byte can be incremented.
  end[end.length - 1]++;
  return { key: base64(prefix), range_end: end.toString('base64') };
}

function fields(value: unknown): Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : {};
}

/** The gateway leaves out empty lists and zeros. */
function list(value: unknown): readonly Fields[] {
  return Array.isArray(value) ? value.map(fields) : [];
}

function int64(value: unknown): string {
  return typeof value === 'string' && /^-?\d{1,20}$/.test(value) ? value : '0';
}

function entryOf({ key, value, lease, mod_revision }: Fields): EtcdEntry {
  return {
    key: bytes(key).toString('utf8'),
    value: bytes(value),
    lease: int64(lease),
    modRevision: int64(mod_revision),
  };
}

function eventOf({ type, kv }: Fields): EtcdEvent {
  return { ...entryOf(fields(kv)), isDelete: type === 'DELETE' };
}

function bytes(value: unknown): Buffer {
  return Buffer.from(typeof value === 'string' ? value : '', 'base64');
}
