import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { formatAddress, ip } from '../native/index.ts';
import { MAX_ENDPOINTS_PER_PEER } from '../proxy/control/announced-table.ts';
import { formatIpEndpoint, type IpEndpoint, parseIpEndpoint } from '../steering/index.ts';
import { Announcements, type AnnouncementsOptions } from './announcements.ts';
import { deadEnd, until } from './fixtures/relayed.ts';

/** A relay's announcements, and what reached its steering. */
class Party implements AsyncDisposable {
  readonly heard = new Set<string>();
  readonly errors: string[] = [];
  readonly peerNews: string[] = [];
  readonly announcements: Announcements;
  readonly callers: ReadonlyMap<string, string>;

  static async start(
    options: Pick<AnnouncementsOptions, 'name' | 'peers'> & { readonly port?: number },
  ): Promise<Party> {
    const heard = new Set<string>();
    const errors: string[] = [];
    const peerNews: string[] = [];
    const callers = new Map<string, string>();
    const announcements = await Announcements.start({
      ...options,
      listen: { host: '127.0.0.1', port: options.port ?? 0 },
      sink: {
        announce: (endpoint: IpEndpoint) => void heard.add(formatIpEndpoint(endpoint)),
        setTrueClient: (local, client) => void callers.set(formatAddress(local), formatAddress(client)),
        forgetTrueClient: (local) => void callers.delete(formatAddress(local)),
        withdraw: (endpoint: IpEndpoint) => void heard.delete(formatIpEndpoint(endpoint)),
      },
      onError: ({ message }) => void errors.push(message),
      onPeer: ({ name }, isUp, reason) => void peerNews.push(`${name} ${isUp ? 'up' : reason}`),
    });
    return new Party(announcements, heard, errors, peerNews, callers);
  }

  private constructor(
    announcements: Announcements,
    heard: Set<string>,
    errors: string[],
    peerNews: string[],
    callers: Map<string, string>,
  ) {
    this.callers = callers;
    this.announcements = announcements;
    this.heard = heard;
    this.errors = errors;
    this.peerNews = peerNews;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.announcements.close();
  }
}

function freePort(): number {
  const address = deadEnd();
  return address.family === 'unix' ? 0 : address.port;
}

const peer = (name: string, port: number) => ({ name, host: '127.0.0.1', port });
const hello = (name: string): string => `${JSON.stringify({ millrace: 'announcements', version: 1, name })}\n`;

/** Says something to a relay; what it answers until it hangs up. */
async function say(port: number, words: string): Promise<string> {
  const socket = connect({ host: '127.0.0.1', port });
  await once(socket, 'connect');
  socket.write(words);
  return text(socket);
}

describe('announcements', () => {
  test('names that are none, or come twice, and a port that is taken are said at once', async () => {
    await assert.rejects(Party.start({ name: 'a b', peers: [] }), /'a b' is no name for a relay/);
    await assert.rejects(Party.start({ name: 'a', peers: [peer('a', 1)] }), /two relays are called a/);
    await using party = await Party.start({ name: 'a', peers: [] });
    await assert.rejects(Party.start({ name: 'b', peers: [], port: party.announcements.port }), /EADDRINUSE/);
  });

  test('callers who say nonsense or are not known are refused with a reason, and nothing of theirs is believed', async () => {
    await using party = await Party.start({
      name: 'a',
      peers: [{ name: 'far', host: '192.0.2.7', port: 9 }, peer('b', freePort())],
    });
    const { port } = party.announcements;
    for (const [words, reason] of [
      ['GET / HTTP/1.1\r\n', /not JSON/],
      ['{"announce":["10.0.0.1:80"]}\n', /no hello/],
      [hello('c'), /no peer is called c/],
      [hello('far'), /far is expected from 192.0.2.7/],
      [`${hello('b')}${hello('b')}`, /a second hello/],
      [`${hello('b')}{"announce":["10.0.0.1:80"]}\n{"announce":7}\n`, /no list/],
      ['x'.repeat(70_000), /a line of more than/],
    ] as const) {
      const answer = await say(port, words);
      assert.match(answer, /"refused":/);
      assert.match(answer, reason);
    }
    await until('everything is withdrawn', () => party.heard.size === 0);
    assert.equal(party.errors.length, 7);
  });

  test('a peer cannot announce without bound', async () => {
    await using party = await Party.start({ name: 'a', peers: [peer('b', freePort())] });
    const lines = Array.from({ length: MAX_ENDPOINTS_PER_PEER / 512 + 1 }, (_, line) => {
      const list = Array.from({ length: 512 }, (_, index) => `10.0.${line}.1:${index + 1}`);
      return `${JSON.stringify({ announce: list })}\n`;
    });
    assert.match(
      await say(party.announcements.port, hello('b') + lines.join('')),
      /more announcements than a peer may make/,
    );
    await until('everything is withdrawn', () => party.heard.size === 0);
  });

  test('peers hear what listens, what comes and what goes, and forget it when the teller is gone', async () => {
    const [portA, portB] = [freePort(), freePort()];
    await using a = await Party.start({ name: 'a', peers: [peer('b', portB)], port: portA });
    a.announcements.setListeners([parseIpEndpoint('10.0.0.1:80'), parseIpEndpoint('[fd00::1]:80')]);
    {
      await using b = await Party.start({ name: 'b', peers: [peer('a', portA)], port: portB });
      await until('b heard', () => b.heard.size === 2);
      b.announcements.setListeners([parseIpEndpoint('10.0.0.2:22')]);
      await until('a heard', () => a.heard.has('10.0.0.2:22'));
      assert.deepEqual(a.announcements.announced, [{ endpoint: '10.0.0.2:22', peers: ['b'] }]);
      a.announcements.setListeners([parseIpEndpoint('10.0.0.1:80'), parseIpEndpoint('10.0.0.1:81')]);
      await until('b heard the changes', () => b.heard.has('10.0.0.1:81') && !b.heard.has('[fd00::1]:80'));
      assert.equal(b.heard.size, 2);
      assert.deepEqual(a.announcements.peers, [{ peer: peer('b', portB), isTold: true, isHeard: true }]);
    }
    await until('a forgot', () => a.heard.size === 0);
    await using again = await Party.start({ name: 'b', peers: [peer('a', portA)], port: portB });
    await until('a calls again', () => again.heard.size === 2);
    assert.ok(a.peerNews.includes('b up'));
  });

  test('the peer of the server that is called knows the caller before the call, and forgets it after', async () => {
    const [portA, portB] = [freePort(), freePort()];
    await using a = await Party.start({ name: 'a', peers: [peer('b', portB)], port: portA });
    {
      await using b = await Party.start({ name: 'b', peers: [peer('a', portA)], port: portB });
      b.announcements.setListeners([parseIpEndpoint('10.0.0.2:80')]);
      await until('a heard', () => a.heard.size === 1 && a.announcements.peers[0]?.isTold);
      const [first, second, server] = [ip('10.0.0.1', 4001), ip('10.0.0.1', 4002), ip('10.0.0.2', 80)];
      assert.equal(
        a.announcements.setTrueClient(first, ip('10.0.0.1', 9), ip('10.0.0.3', 80)),
        undefined,
        'nobody to tell',
      );
      await a.announcements.setTrueClient(first, ip('10.0.0.1', 4000), server);
      assert.deepEqual([...b.callers], [['10.0.0.1:4001', '10.0.0.1:4000']]);
      a.announcements.forgetTrueClient(first, server);
      await a.announcements.setTrueClient(second, ip('10.0.0.1', 4000), server);
      assert.deepEqual([...b.callers.keys()], ['10.0.0.1:4002']);
      await a.announcements.close();
      await until('b forgets what a said', () => b.callers.size === 0);
    }
  });

  test('what two peers or this host announced stays until the last withdraws it', async () => {
    await using a = await Party.start({ name: 'a', peers: [peer('b', freePort()), peer('c', freePort())] });
    const { port } = a.announcements;
    a.announcements.announceHere(parseIpEndpoint('10.0.0.9:9'));
    const callers = ['b', 'c'].map((name) => {
      const socket = connect({ host: '127.0.0.1', port });
      socket.write(`${hello(name)}{"announce":["10.0.0.9:80","10.0.0.9:9"]}\n`);
      return socket;
    });
    await until('both are heard', () => a.announcements.announced[1]?.peers.length === 2);
    callers[0]?.destroy();
    await until('one is gone', () => a.announcements.announced[1]?.peers.length === 1);
    assert.deepEqual([...a.heard], ['10.0.0.9:9', '10.0.0.9:80']);
    callers[1]?.destroy();
    await until('the other is gone', () => !a.heard.has('10.0.0.9:80'));
    assert.deepEqual([...a.heard], ['10.0.0.9:9']);
  });
});
