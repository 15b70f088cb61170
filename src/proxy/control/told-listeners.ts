// Lists of listeners as peers are told them. Peers that are told the same share one list; what
// leads from one list to another is found once and written once, however many peers are told it.

import { formatIpEndpoint, type IpEndpoint } from '../../steering/index.ts';
import { controlProtocol, type ListenersKind, MAX_ENDPOINTS_PER_LINE } from './control-protocol.ts';
import { MAX_ENDPOINTS_PER_PEER } from './control-spec.ts';

type Endpoints = ReadonlyMap<string, IpEndpoint>;

/** What a peer is told of; `library`: those of programs that have the library. */
export class ToldListeners {
  readonly listeners: Endpoints;
  readonly library: Endpoints;

  constructor(listeners: readonly IpEndpoint[], library: readonly IpEndpoint[]) {
    const keyed = (endpoints: readonly IpEndpoint[]): [string, IpEndpoint][] =>
      endpoints.map((one) => [formatIpEndpoint(one), one]);
    this.listeners = new Map(keyed(listeners.slice(0, MAX_ENDPOINTS_PER_PEER)));
    this.library = new Map(keyed(library).filter(([key]) => this.listeners.has(key)));
  }
}

const noLines = Buffer.alloc(0);
export const nothingTold = new ToldListeners([], []);

export class ListenerNews {
  /** By the lists themselves: who asks with the same ones gets the same. */
  readonly #lists = new WeakMap<readonly IpEndpoint[], WeakMap<readonly IpEndpoint[], ToldListeners>>();
  readonly #lines = new WeakMap<ToldListeners, WeakMap<ToldListeners, Buffer>>();

  told(listeners: readonly IpEndpoint[], library: readonly IpEndpoint[]): ToldListeners {
    return found(
      found(this.#lists, listeners, () => new WeakMap()),
      library,
      () => new ToldListeners(listeners, library),
    );
  }

  /** The lines that lead from what a peer was told to what it is to be told; none when it knows. */
  between(before: ToldListeners, after: ToldListeners): Buffer {
    if (before === after) return noLines;
    return found(
      found(this.#lines, before, () => new WeakMap()),
      after,
      () =>
        Buffer.from(
          [
            linesOf('withdrawLibrary', without(before.library, after.library)),
            linesOf('withdraw', without(before.listeners, after.listeners)),
            linesOf('announce', without(after.listeners, before.listeners)),
            linesOf('announceLibrary', without(after.library, before.library)),
          ].join(''),
        ),
    );
  }
}

function found<K extends object, V>(map: WeakMap<K, V>, key: K, make: () => V): V {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}

/** Those that the others do not have. */
function without(endpoints: Endpoints, others: Endpoints): readonly IpEndpoint[] {
  const left: IpEndpoint[] = [];
  for (const [key, endpoint] of endpoints) if (!others.has(key)) left.push(endpoint);
  return left;
}

function linesOf(kind: ListenersKind, endpoints: readonly IpEndpoint[]): string {
  let lines = '';
  for (let at = 0; at < endpoints.length; at += MAX_ENDPOINTS_PER_LINE) {
    lines += controlProtocol.line({ kind, endpoints: endpoints.slice(at, at + MAX_ENDPOINTS_PER_LINE) });
  }
  return lines;
}
