// The traffic of one host: serves, and keeps connections to the other host open. It reads orders
// (`start`, `stop`) from its standard input, and reports every connection that did not end exactly,
// and the totals in the end.

import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { constants, setPriority } from 'node:os';
import { createInterface } from 'node:readline';
import { setTimeout as rest } from 'node:timers/promises';
import { Random } from '../worlds/index.ts';
import { CheckedSocket } from './checked-socket.ts';
import { call, type Outcome, Stuck, serve } from './conversation.ts';
import { type Behaviour, behaviours } from './script.ts';
import { newTotals, type TrafficEvent, type TrafficOrders, type TrafficTotals } from './traffic-protocol.ts';

/**
 * A connection on which nothing moves for this long is stuck; it is longer than any pause and any
 * fault to survive.
 */
const STUCK_MS = 45_000;
const LOOK_MS = 1000;

/** How many of twenty connections have a behaviour. */
const shares: Readonly<Record<Behaviour, number>> = {
  bulk: 2,
  pingPong: 4,
  short: 3,
  halfClose: 2,
  slowReader: 2,
  idle: 3,
  resetByClient: 1,
  resetByServer: 1,
  connectAndClose: 1,
  abort: 1,
};
const mix = behaviours.flatMap((behaviour) => Array.from({ length: shares[behaviour] }, () => behaviour));

const orders = JSON.parse(process.argv[2] ?? '{}') as TrafficOrders;
const totals: TrafficTotals = newTotals();
const open = new Set<CheckedSocket>();
const ending = new AbortController();

function tell(event: TrafficEvent): void {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

async function follow(socket: Socket, play: (checked: CheckedSocket) => Promise<Outcome>): Promise<Outcome> {
  const checked = new CheckedSocket(socket);
  open.add(checked);
  const outcome = await play(checked);
  open.delete(checked);
  const row = totals[outcome.behaviour];
  row[outcome.ending]++;
  row.bytes += outcome.bytes;
  if (outcome.ending !== 'exact') tell({ event: 'outcome', outcome });
  return outcome;
}

/** Opens one connection after the other, all of one behaviour. */
async function keepCalling(behaviour: Behaviour, random: Random): Promise<void> {
  while (!ending.signal.aborted) {
    const host = random.pick([orders.targets[0], ...orders.targets.slice(1)]);
    const socket = connect({ host, port: orders.port, allowHalfOpen: true, noDelay: true });
    await follow(socket, (checked) => call(checked, behaviour, random.between(0, 0xffff_ffff)));
    // The pause ends early when the traffic ends.
    await rest(random.between(50, 800), undefined, { signal: ending.signal }).catch(() => {});
  }
}

// Lower priority, because the daemons are tested: one that starts must not wait for the traffic.
setPriority(constants.priority.PRIORITY_BELOW_NORMAL);
const server = createServer({ allowHalfOpen: true, noDelay: true });
const served = new Set<Promise<Outcome>>();
server.on('connection', (socket) => {
  const outcome = follow(socket, serve);
  served.add(outcome);
  void outcome.then(() => served.delete(outcome));
});
server.listen({ port: orders.port, host: '::', backlog: 1024 });
await once(server, 'listening');

const watch = setInterval(() => {
  const beforeMs = Date.now() - STUCK_MS;
  for (const socket of open) {
    if (socket.movedMs < beforeMs) socket.giveUp(new Stuck(`nothing moved for ${STUCK_MS / 1000} s`));
  }
}, LOOK_MS);

let calling: Promise<unknown> = Promise.resolve();
tell({ event: 'listening' });
for await (const order of createInterface(process.stdin)) {
  if (order === 'start') {
    const random = new Random(orders.seed);
    const slots = Array.from({ length: orders.connections }, (_, slot) => mix[(slot * 7) % mix.length] ?? 'short');
    calling = Promise.all(slots.map((behaviour) => keepCalling(behaviour, random.fork())));
  } else if (order === 'stop') {
    ending.abort();
    await calling;
    tell({ event: 'called' });
  } else if (order === 'end') {
    // No client connects any more, so connections that are still served end too.
    while (served.size > 0) await Promise.all(served);
    tell({ event: 'totals', totals });
    break;
  }
}
clearInterval(watch);
server.close();
process.stdin.destroy();
