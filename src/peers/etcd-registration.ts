// This node's entry in etcd: bound to a lease, made again when it is lost, never taken from another
// node.

import type { EtcdClient, EtcdEntry } from './etcd-client.ts';
import { decodeNodeEntry, encodeNodeValue, type NodePlace, nodesPrefix } from './node-entry.ts';

/** Others may write to the key at the same time; one of them wins soon. */
const MAX_TRIES = 5;

export class EtcdRegistration {
  readonly #self: NodePlace;
  readonly #key: string;
  readonly #value: string;
  readonly #leaseSeconds: number;
  #lease = '';
  #wasRegistered = false;
  #conflict = '';
  /** Renewals run one after the other: the watch and the timer may both find the entry missing. */
  #busy: Promise<void> = Promise.resolve();

  constructor(self: NodePlace, prefix: string, leaseSeconds: number) {
    this.#self = self;
    this.#key = `${nodesPrefix(prefix)}${self.name}`;
    this.#value = encodeNodeValue(self);
    this.#leaseSeconds = leaseSeconds;
  }

  /** Why this node could not register; '' when it is registered. */
  get conflict(): string {
    return this.#conflict;
  }

  isOwn({ lease, isDelete }: { readonly lease: string; readonly isDelete: boolean }): boolean {
    return !isDelete && lease === this.#lease;
  }

  /**
   * Makes the lease and the entry where they are missing. A conflict is not an error: see
   * `conflict`.
   */
  async renew(client: EtcdClient): Promise<void> {
    const before = this.#busy;
    const mine = before.then(() => this.#renew(client));
    // The next renewal waits for the end of this one, not for its success.
    this.#busy = mine.catch(() => {});
    await mine;
  }

  /** Keeps the lease alive, and registers again when the lease or the entry is missing. */
  async keepAlive(client: EtcdClient): Promise<void> {
    if (this.#conflict === '' && this.#lease !== '' && (await client.keepLeaseAlive(this.#lease))) return;
    await this.renew(client);
  }

  /** Revokes the lease, which removes the entry. */
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
    this.#conflict = `register ${this.#key}: other writers keep changing the key; it is tried again`;
  }

  /** Whether the entry is this node's now. */
  async #takeOver(client: EtcdClient, found: EtcdEntry): Promise<boolean> {
    if (!this.#mayTakeOver(found)) return false;
    if (found.lease === this.#lease && found.value.toString() === this.#value) return true;
    const { modRevision } = found;
    return (await client.putIf(this.#key, this.#value, this.#lease, { modRevision })) === null;
  }

  /**
   * An entry of this daemon, or at first of its predecessor at the same address. Later, an equal
   * entry is a second daemon's.
   */
  #mayTakeOver({ lease, value }: EtcdEntry): boolean {
    return lease === this.#lease || (!this.#wasRegistered && value.toString() === this.#value);
  }

  #describe({ lease, value }: EtcdEntry): string {
    const { name } = this.#self;
    const advice = lease === '0' ? `remove it: etcdctl del ${this.#key}` : 'give one of the two another name';
    let holder = 'an invalid entry';
    try {
      const { host, port } = decodeNodeEntry(name, value);
      holder = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
    } catch {
      // The entry is invalid, and still takes the name.
    }
    return `the name ${name} is taken in etcd by ${holder}; ${advice}`;
  }
}
