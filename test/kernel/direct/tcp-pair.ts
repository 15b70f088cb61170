// Both ends of a TCP connection in one process, in whatever network namespaces.

import assert from 'node:assert/strict';
import { type Address, formatAddress, ip, Socket } from '../../../src/native/index.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';

export interface Ends extends Disposable {
  readonly client: Socket;
  readonly acceptor: Socket;
}

interface PairOptions {
  /** Runs what makes the sockets of an end. */
  readonly atClient?: <T>(make: () => T) => T;
  readonly atServer?: <T>(make: () => T) => T;
  /** Where the server listens. */
  readonly listen?: Address;
  /** Where the client connects to, as it is told. */
  readonly connect?: (listening: Address) => Address;
}

const here = <T>(make: () => T): T => make();

export async function tcpPair(options: PairOptions = {}): Promise<Ends> {
  const { atClient = here, atServer = here, listen = ip('127.0.0.1', 0), connect = (to) => to } = options;
  using undo = new DisposableStack();
  using listener = atServer(() => Socket.stream(listen.family));
  listener.setOption('reuseAddress', 1);
  listener.bind(listen);
  listener.listen();
  const client = undo.use(atClient(() => Socket.stream(listen.family)));
  const to = connect(listener.localAddress);
  await eventually(`a connection to ${formatAddress(to)}`, () => client.connect(to));
  let accepted: Socket | undefined;
  await eventually('it is accepted', () => {
    accepted = listener.accept();
    return accepted !== undefined;
  });
  const acceptor = undo.use(accepted ?? assert.fail());
  const owner = undo.move();
  return { client, acceptor, [Symbol.dispose]: () => owner.dispose() };
}
