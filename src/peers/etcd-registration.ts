// This node's own entry in etcd: bound to a lease, made anew when it is lost, never taken from another node.

import type { EtcdClient, EtcdEntry } from './etcd-client.ts';
import { decodeNodeEntry, encodeNodeValue, type NodePlace, nodesPrefix } from './node-entry.ts';

/** Others write to the key at the same time; somebody wins soon. */
const MAX_TRIES = 5;

export class EtcdRegistration {
  readonly #self: NodePlace;
  readonly #key: string;
  readonly #value: string;
  readonly #leaseSeconds: number;
  #lease = '';
  #wasRegistered = false;
  #conflict = '';
  /** One after the other: the watch and the clock both see that the entry is gone. */
  #busy: Promise<void> = Promise.resolve();

  constructor(self: NodePlace, prefix: string, leaseSeconds: number) {
    this.#self = self;
    this.#key = `${nodesPrefix(prefix)}${self.name}`;
    this.#value = encodeNodeValue(self);
    this.#leaseSeconds = leaseSeconds;
  }

  /** Why the entry is not there; '' when it is. */
  get conflict(): string {
    return this.#conflict;
  }

  isOwn({ lease, isDelete }: { readonly lease: string; readonly isDelete: boolean }): boolean {
    return !isDelete && lease === this.#lease;
  }

  /** Brings lease and entry into being as far as they are not. A conflict is no error: see `conflict`. */
  async renew(client: EtcdClient): Promise<void> {
    const before = this.#busy;
    const mine = before.then(() => this.#renew(client));
    // Who comes next waits for the end, not for success.
    this.#busy = mine.catch(() => {});
    await mine;
  }

  /** Keeps the lease; the entry with it, unless the lease is gone or the entry was never made. */
  async keepAlive(client: EtcdClient): Promise<void> {
    if (this.#conflict === '' && this.#lease !== '' && (await client.keepLeaseAlive(this.#lease))) return;
    await this.renew(client);
  }

  /** The entry goes with the lease. */
  async leave(client: EtcdClient): Promise<void> {
    await this.#busy;
    if (this.#lease === '') return;
    const lease = this.#lease;
    this.#lease = '';
    await client.revokeLease(lease);
  }

  async #renew(client: EtcdClient): Promise<void> {
    if (this.#lease !== '' && !(await client.keepLeaseAlive(this.#lease))) this.#lease = '';
    if (this.#lease === '') this.#lease = await client.grantLease(this.#leaseSeconds);
    for (let attempt = 0; attempt < MAX_TRIES; attempt++) {
      const found = await client.putIf(this.#key, this.#value, this.#lease, { absent: true });
      if (found === null || (found !== undefined && (await this.#takeOver(client, found)))) {
        this.#wasRegistered = true;
        this.#conflict = '';
        return;
      }
      if (found !== undefined && !this.#mayTakeOver(found)) {
        this.#conflict = this.#describe(found);
        return;
      }
    }
    this.#conflict = `register ${this.#key}: others keep changing it`;
  }

  /** Whether the entry is ours now. */
  async #takeOver(client: EtcdClient, found: EtcdEntry): Promise<boolean> {
    if (!this.#mayTakeOver(found)) return false;
    if (found.lease === this.#lease && found.value.toString() === this.#value) return true;
    const { modRevision } = found;
    return (await client.putIf(this.#key, this.#value, this.#lease, { modRevision })) === null;
  }

  /** What this daemon wrote, or the one before it at the same place. Later, an equal entry is that of a second daemon. */
  #mayTakeOver({ lease, value }: EtcdEntry): boolean {
    return lease === this.#lease || (!this.#wasRegistered && value.toString() === this.#value);
  }

  #describe({ lease, value }: EtcdEntry): string {
    const { name } = this.#self;
    const advice = lease === '0' ? `remove it: etcdctl del ${this.#key}` : 'give one of the two another name';
    let holder = 'an entry that is none';
    try {
      const { host, port } = decodeNodeEntry(name, value);
      holder = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
    } catch {
      // Whatever it is, it is in the way.
    }
    return `the name ${name} is taken in etcd by ${holder}; ${advice}`;
  }
}
