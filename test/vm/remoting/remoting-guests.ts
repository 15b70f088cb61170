// Two guests without RDMA on one backend, which is another process, and the hub where their
// programs and those of the host meet.

import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { readLine } from '../../../src/json-lines/line.ts';
import { Guest } from '../../../src/lab/vm/index.ts';
import { BackendProcess } from '../../../src/remoting/backend/fixtures/backend-process.ts';
import { registerMachine } from '../../../src/remoting/transports/qemu/registration.ts';
import { closeEnds, QemuWiring } from '../../../src/remoting/transports/qemu/wiring.ts';
import { GuestPrograms } from '../guest-programs.ts';

const names = ['a', 'b'] as const;
export type Name = (typeof names)[number];

export class RemotingGuests implements AsyncDisposable {
  readonly programs: GuestPrograms;
  readonly backend: BackendProcess;
  readonly #guests: ReadonlyMap<Name, Guest>;
  readonly #hub: Server;
  readonly #resources: AsyncDisposableStack;

  static async boot(files: readonly string[]): Promise<RemotingGuests> {
    await using undo = new AsyncDisposableStack();
    const programs = undo.use(await GuestPrograms.build(files));
    const backend = undo.use(await BackendProcess.start());
    const boot = async (name: Name): Promise<readonly [Name, Guest]> => {
      using wiring = new QemuWiring();
      registerMachine(backend.socketPath, name, wiring.ends);
      closeEnds(wiring.ends);
      const network = { isCaptured: false };
      const guest = undo.use(await Guest.boot({ name, memoryMb: 512, cpus: 1, network, sharing: wiring.sharing }));
      return [name, guest];
    };
    const guests = await Promise.all(names.map(boot));
    const hub = undo.adopt(createServer(), (each) => void each.close());
    hub.listen(0, '127.0.0.1');
    await once(hub, 'listening');
    joinPairs(hub);
    return new RemotingGuests(programs, backend, new Map(guests), hub, undo.move());
  }

  private constructor(
    programs: GuestPrograms,
    backend: BackendProcess,
    guests: ReadonlyMap<Name, Guest>,
    hub: Server,
    resources: AsyncDisposableStack,
  ) {
    this.programs = programs;
    this.backend = backend;
    this.#guests = guests;
    this.#hub = hub;
    this.#resources = resources;
  }

  guest(name: Name): Guest {
    const guest = this.#guests.get(name);
    if (guest === undefined) throw new Error(`there is no guest ${name}`);
    return guest;
  }

  /** For programs that use the backend. */
  get env(): Readonly<Record<string, string>> {
    return { MILLRACE_BACKEND: 'qemu', ...this.programs.env };
  }

  get hubPort(): string {
    return String((this.#hub.address() as AddressInfo).port);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#resources.disposeAsync();
  }
}

/** Who wants each other is joined. */
function joinPairs(hub: Server): void {
  const waiting = new Map<string, Socket>();
  hub.on('connection', (socket) => {
    socket.on('error', () => socket.destroy());
    void readLine(socket).then((line) => {
      const { me, peer } = line as { me: string; peer: string };
      const other = waiting.get(`${peer} ${me}`);
      if (other === undefined) {
        waiting.set(`${me} ${peer}`, socket);
        return;
      }
      socket.pipe(other).pipe(socket);
    });
  });
}
