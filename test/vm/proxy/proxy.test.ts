// Two guests on one cable: RoCEv2 crosses it, and the capture shows it. Then connections of
// programs in them, carried by daemons over the kernel's RDMA device; what happens when that
// breaks; and our own RoCEv2 at the other end.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { GuestProgram } from '../guest-program.ts';
import { addresses, names, ProxyGuests, rdmaAddresses } from './proxy-guests.ts';

const timeout = 280_000;
const port = '7000';
const redisPort = '6379';
const kernelWire = 'RoCEv2';
const devices = { a: ['rxe0', 'soft-tcp'], b: ['rxe0', 'soft-roce', 'soft-tcp'] } as const;
/** What must have moved on each connection, again, after something has happened to it. */
const LEAST_BYTES = 256 * 1024;

/** As guest/proxy-traffic.ts tells it. */
interface Talked {
  readonly host: string;
  readonly sent: { readonly bytes: number; readonly sha256: string };
  readonly got: { readonly bytes: number; readonly sha256: string };
  readonly error: string;
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/**
 * Waits until more has come on each connection; if nothing does, the error tells all that is known.
 */
async function moves(client: GuestProgram, guests: ProxyGuests): Promise<void> {
  try {
    await movesOn(client);
  } catch (error) {
    const known = `${guests.linkHistory()}\n${await guests.connectionHistory()}`;
    throw new Error(known, { cause: error });
  }
}

async function movesOn(client: GuestProgram): Promise<void> {
  const after = client.count;
  const before = new Map<string, number>();
  for (const { host, bytes } of client.all('moved') as Moved[]) before.set(host, bytes);
  const isMore = ({ host, bytes }: Moved): boolean => bytes >= (before.get(host) ?? 0) + LEAST_BYTES;
  for (const host of addresses.b) {
    await client.told('moved', {
      after,
      isWanted: (data) => (data as Moved).host === host && isMore(data as Moved),
    });
  }
}

interface Moved {
  readonly host: string;
  readonly bytes: number;
}

describe('two guests', { concurrency: false }, () => {
  let guests: ProxyGuests;
  before(
    async () => {
      guests = await ProxyGuests.boot();
    },
    { timeout },
  );
  after(() => guests?.[Symbol.asyncDispose]());

  test('talk RoCEv2 over their cable, and it is recorded', { timeout }, async () => {
    const [first, second] = [guests.guest('a'), guests.guest('b')];
    const words = ['stdbuf', '-oL', 'ibv_rc_pingpong', '-d', 'rxe0', '-g', '1', '-n', '10'];
    const { promise: isUp, resolve } = Promise.withResolvers<void>();
    const server = first.runOk(words, { timeoutMs: 60_000, onOutput: () => resolve() });
    await Promise.race([isUp, server]);
    const client = second.runOk([...words, '10.78.0.1'], { timeoutMs: 60_000 });
    for (const { stdout } of await Promise.all([server, client])) assert.match(stdout, /10 iters in/);
    const folder = mkdtempSync(join(tmpdir(), 'millrace-pair-'));
    try {
      const pcap = join(folder, 'cable.pcap');
      first.saveCapture(pcap);
      const { stdout } = spawnSync('tshark', ['-r', pcap, '-Y', 'infiniband'], { encoding: 'utf8' });
      assert.match(stdout, /10\.78\.0\.1 → 10\.78\.0\.2 .*RC Send/);
      assert.match(stdout, /10\.78\.0\.2 → 10\.78\.0\.1 .*RC Acknowledge/);
    } finally {
      rmSync(folder, { recursive: true });
    }
    // What is kept of a test that failed.
    const kept = first.keepEvidence();
    for (const path of kept) rmSync(path);
    assert.match(kept.join(), /vm-a-\d+\.console\.txt,.*\.pcap$/);
  });

  describe('the proxy on rxe', () => {
    let server: GuestProgram;

    before(
      async () => {
        await Promise.all(names.map((name) => guests.startDaemon(name, devices[name])));
        server = guests.start('b', 'proxy-traffic', 'serve', port);
        await server.told('listening');
      },
      { timeout },
    );

    /** Talks to the server by IPv4 and IPv6, and is carried. */
    async function call(): Promise<GuestProgram> {
      await guests.announced('a', 1);
      const before = await guests.status('a');
      const client = guests.start('a', 'proxy-traffic', 'call', port, ...addresses.b);
      await moves(client, guests);
      const { verdicts } = await guests.status('a');
      assert.equal(verdicts.carried, (before.verdicts.carried ?? 0) + addresses.b.length);
      return client;
    }

    /** Ends the talk: what either side sent is what the other got. */
    async function assertWhole(client: GuestProgram): Promise<void> {
      const after = server.count;
      await client.signal('USR2');
      await client.exit();
      const all = client.all('talked') as Talked[];
      assert.equal(all.length, addresses.b.length);
      for (const { host, sent, got, error } of all) {
        // Of IPv4, the server sees an address of IPv6.
        const isIt = (data: unknown): boolean => (data as Talked).host.endsWith(host);
        const other = (await server.told('talked', { after, isWanted: isIt })) as Talked;
        assert.deepEqual(
          { sent: other.got, got: other.sent, errors: ['', ''] },
          { sent, got, errors: [error, other.error] },
        );
      }
    }

    test('redis gives back what was put into it, by IPv4 and by IPv6', { timeout }, async () => {
      await guests.announced('a', 1);
      const before = await guests.status('a');
      const stop = new AbortController();
      const words = ['--port', redisPort, '--bind', '*', '-::*', '--protected-mode', 'no', '--save', ''];
      const serving = guests.guest('b').run(['redis-server', ...words], { signal: stop.signal });
      serving.catch(() => undefined);
      await guests.announced('a', (before.peers[0]?.listeners ?? 0) + 2);
      const cli = async (host: string, rest: readonly string[], input = ''): Promise<string> => {
        const all = ['redis-cli', '-h', host, '-p', redisPort, ...rest];
        return (await guests.guest('a').runOk(all, { input, timeoutMs: timeout })).stdout.trimEnd();
      };
      const value = randomBytes(500_000).toString('hex');
      const [ipv4, ipv6] = addresses.b;
      assert.equal(await cli(ipv4, ['-x', 'SET', 'large'], value), 'OK');
      for (const name of names) assert.equal(await guests.wireUp(name), kernelWire);
      assert.equal(sha256(await cli(ipv6, ['GET', 'large'])), sha256(value));
      const { verdicts, counters } = await guests.status('a');
      assert.equal(verdicts.carried, (before.verdicts.carried ?? 0) + 2);
      assert.ok(counters.bytesOut - before.counters.bytesOut > value.length);
      assert.ok(counters.bytesIn - before.counters.bytesIn > value.length);
      stop.abort();
      await assert.rejects(serving);
    });

    test('no byte is lost when queue pairs break, and when RDMA does not get through any more', {
      timeout,
    }, async () => {
      const client = await call();
      for (const name of names) {
        const daemon = guests.daemon(name);
        const { count } = daemon;
        await daemon.signal('USR2');
        assert.equal(await guests.wireUp(name, count), kernelWire, guests.linkHistory());
        await moves(client, guests);
        // Broken before that, it would have failed twice in a row, and TCP would be tried.
        await guests.hasWorked('a');
      }
      // What RDMA sends to the other guest goes to nobody from now on; the daemons still reach each
      // other.
      const nobody = ['neigh', 'replace', rdmaAddresses.a, 'lladdr', '02:00:00:00:00:01', 'dev', 'eth0'];
      let { count } = guests.daemon('a');
      await guests.guest('b').runOk(['ip', ...nobody]);
      while ((await guests.wireUp('a', count)) !== 'tcp') count = guests.daemon('a').count;
      await moves(client, guests);
      await assertWhole(client);
    });

    test('where one side lacks the device, our own RoCEv2 stands in, and talks with the kernel’s', {
      timeout,
    }, async () => {
      const { count } = guests.daemon('a');
      await guests.stopDaemon('b');
      // The kernel's own keeps the port for as long as it is loaded.
      const words = `ip neigh del ${rdmaAddresses.a} dev eth0 && rdma link delete rxe0 && rmmod rdma_rxe`;
      await guests.guest('b').runOk(['sh', '-c', words], { timeoutMs: timeout });
      await guests.startDaemon('b', devices.b);
      const client = await call();
      assert.deepEqual([await guests.wireUp('a', count), await guests.wireUp('b')], [kernelWire, 'roce']);
      const { count: after } = guests.daemon('a');
      await guests.daemon('a').signal('USR2');
      assert.equal(await guests.wireUp('a', after), kernelWire);
      await moves(client, guests);
      await assertWhole(client);
    });
  });
});
