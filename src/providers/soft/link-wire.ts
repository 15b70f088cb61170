// What wires with a link for each pair of QPs have in common.

import { UnsupportedError } from '../../errors.ts';
import type { Gid, Mtu, PathTo, ProviderAh, QpSpec } from '../../verbs/index.ts';
import { LinkedQp } from './linked-qp.ts';
import type { QpOwner } from './qp.ts';
import type { Wire } from './wire.ts';

export abstract class LinkWire implements Wire<LinkedQp> {
  abstract readonly gid: Gid;
  abstract readonly lid: number;
  abstract readonly needsEvents: boolean;
  /** Messages are not cut into packets, so any path MTU fits. */
  readonly mtu: Mtu = 4096;
  readonly hasLinks = true;

  createQp(owner: QpOwner<LinkedQp>, number: number, pd: object, spec: QpSpec): LinkedQp {
    return new LinkedQp(owner, number, pd, spec);
  }

  createAh(_path: PathTo): ProviderAh {
    throw new UnsupportedError('an address handle: this wire carries no datagrams; roce does');
  }

  receive(): void {}

  settle(): void {}

  flush(): void {}

  counters(): Readonly<Record<string, number>> {
    return {};
  }

  abstract establish(qp: LinkedQp): void;
  abstract wanted(qp: LinkedQp): void;
  abstract abandon(qp: LinkedQp): void;
  abstract revoked(): void;
  abstract sleep(): boolean;
  abstract close(): void;
}
