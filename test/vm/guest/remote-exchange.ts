// One of several programs that exchange data with each other over verbs, all at once: in guests
// through remoting, on the host without.
//
//   node remote-exchange.ts NAME HUB_HOST HUB_PORT ROUNDS PEER...
//
// They find each other through a hub: each says on a connection who it is and whom it wants, and
// the hub joins the two. Tells one line of JSON in the end.

import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import { writeLine } from '../../../src/json-lines/line.ts';
import { access, connectQp, openDevice, Requests } from '../../../src/providers/index.ts';

const [name = '', hubHost = '', hubPort = '', rounds = '', ...peers] = process.argv.slice(2);
const BLOCK_BYTES = 65_536;
const SUM_BYTES = 32;
const flags = access.localWrite | access.remoteWrite | access.remoteRead;

using device = openDevice('soft-shm');
using pd = device.createPd();

/**
 * Each round: random bytes and their sum go by WRITE into the peer's memory, a SEND tells it, and
 * it checks them. Then it fetches what the peer has put aside, by READ, and checks that.
 */
async function exchange(peer: string): Promise<number> {
  const mine = pd.allocate({ sizeBytes: 4 * BLOCK_BYTES, access: flags });
  const theirs = pd.allocate({ sizeBytes: 2 * BLOCK_BYTES, access: flags });
  const channel = device.createChannel();
  const qp = pd.createQp({ sendCq: device.createCq({ channel }) });
  using requests = new Requests(qp);
  const socket = connect(Number(hubPort), hubHost);
  await once(socket, 'connect');
  writeLine(socket, { me: name, peer });
  qp.init();
  const first = requests.receive(mine, 0, 0);
  const { regions } = await connectQp(socket, qp, { regions: { theirs }, expect: ['theirs'] });
  let told = first;
  for (let round = 0; round < Number(rounds); round++) {
    const at = (round % 2) * BLOCK_BYTES;
    put(mine.bytes.subarray(at, at + BLOCK_BYTES));
    await requests.write(mine, at, BLOCK_BYTES, regions.theirs, at);
    await requests.send(mine, 0, 0);
    await told;
    told = requests.receive(mine, 0, 0);
    check(theirs.bytes.subarray(at, at + BLOCK_BYTES), `what ${peer} wrote in round ${round}`);
    await requests.read(mine, 2 * BLOCK_BYTES + at, BLOCK_BYTES, regions.theirs, at);
    check(mine.bytes.subarray(2 * BLOCK_BYTES + at, 3 * BLOCK_BYTES + at), `what was read from ${peer}`);
  }
  // Nobody leaves while the other still reads.
  await requests.send(mine, 0, 0);
  await told;
  socket.destroy();
  return Number(rounds);
}

function put(block: Uint8Array): void {
  randomBytes(BLOCK_BYTES - SUM_BYTES).copy(block);
  block.set(createHash('sha256').update(block.subarray(0, -SUM_BYTES)).digest(), BLOCK_BYTES - SUM_BYTES);
}

function check(block: Uint8Array, what: string): void {
  const sum = createHash('sha256').update(block.subarray(0, -SUM_BYTES)).digest();
  if (!sum.equals(block.subarray(-SUM_BYTES))) throw new Error(`${name}: ${what} is damaged`);
}

const done = await Promise.all(peers.map(exchange));
console.log(JSON.stringify({ name, provider: device.info.provider, peers, rounds: done }));
