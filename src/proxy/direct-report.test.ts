import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { OfferReport } from '../direct/index.ts';
import { connection } from '../telemetry/fixtures/fake-status.ts';
import { carriedAndDirect, directConnections, explainOffer } from './direct-report.ts';

const key = '00112233445566778899aabbccddeeff';
const mirrored = [{ key, wire: 'shm', lane: 1, stream: 7, bytesOut: 10, bytesIn: 20 }];

function offer(given: Partial<OfferReport> = {}): OfferReport {
  return {
    pid: 4711,
    command: 'redis-cli',
    local: '10.0.0.1:40000',
    remote: '10.0.0.2:6379',
    remoteHost: '10.0.0.2',
    netns: 1,
    state: 'direct',
    reason: '',
    direction: 'out',
    peer: '',
    key: '',
    other: '',
    promotedMs: 1000,
    ...given,
  };
}

describe('direct connections are listed', () => {
  test('with what the lanes count of those that they mirror', () => {
    const [one] = directConnections([offer({ peer: 'b', key })], mirrored);
    const { mode, state, peer, wire, lane, stream, bytesIn, bytesOut, heldBytes, sinceMs, pid } = one ?? assert.fail();
    assert.deepEqual([mode, state, peer, wire, lane, stream], ['direct', 'open', 'b', 'shm', 1, 7]);
    assert.deepEqual([bytesIn, bytesOut, heldBytes, sinceMs, pid], [20, 10, null, 1000, 4711]);
  });

  test('without figures within this host, where nobody counts', () => {
    const [one] = directConnections([offer({ other: 'redis-server(7)' })], mirrored);
    const { state, peer, wire, bytesIn, bytesOut } = one ?? assert.fail();
    assert.deepEqual([state, peer, wire, bytesIn, bytesOut], ['open', '', '', null, null]);
  });

  test('as closing when the other end has left, or the lane has lost it; and no other ones', () => {
    const listed = directConnections(
      [
        offer({ state: 'leaving' }),
        offer({ peer: 'b', key: 'f'.repeat(32) }),
        offer({ state: 'waiting' }),
        offer({ state: 'declined' }),
      ],
      mirrored,
    );
    assert.deepEqual(
      listed.map(({ state }) => state),
      ['closing', 'closing'],
    );
  });

  test('as they were before the lanes were asked: one that is promoted meanwhile is not called closing', async () => {
    const offers = [offer({ peer: 'b', key })];
    const lanes = {
      connections: () => {
        offers.push(offer({ peer: 'b', key: 'e'.repeat(32) }));
        return Promise.resolve({ carried: [], mirrored });
      },
    };
    const direct = {
      get offers(): readonly OfferReport[] {
        return [...offers];
      },
    };
    const { connections } = await carriedAndDirect({ lanes, direct });
    assert.deepEqual(
      connections.map(({ state, stream }) => [state, stream]),
      [['open', 7]],
    );
  });
});

describe('an offer is explained', () => {
  const peers = {
    get: (name: string) =>
      ({
        whyNotUp: name === 'c' ? 'peer c is down: it hung up' : '',
        whyNeverDirect: name === 'd' ? 'peer d has no direct connections' : '',
      }) as never,
    ownerOf: (endpoint: string) => ({ '10.0.0.2:6379': 'b', '10.0.0.3:80': 'c', '10.0.0.4:80': 'd' })[endpoint],
    isOwn: (host: string) => host === '127.0.0.1',
  };
  const explained = (given: Partial<OfferReport>, connections = directConnections([offer(given)], mirrored)): string =>
    explainOffer(offer(given), { peers, connections });
  const name = '10.0.0.1:40000 -> 10.0.0.2:6379';

  test('when it is direct, and not any more', () => {
    assert.equal(explained({ other: 'redis-server(7)' }), `${name}: direct, with redis-server(7) on this host`);
    assert.equal(explained({ peer: 'b', key }), `${name}: direct, with a program on the host of b, over shm`);
    assert.match(explained({ peer: 'b', key: '' }, []), /: not direct any more: its link to b was lost/);
    assert.match(explained({ state: 'left', reason: 'it moves bulk' }), /: not direct any more: it moves bulk$/);
    assert.match(explained({ state: 'leaving' }), /: not direct any more: the other end has left it/);
  });

  test('when it was declined', () => {
    assert.equal(
      explained({ state: 'declined', reason: 'both ends are in one program' }),
      `${name}: not direct, its offer was declined: both ends are in one program`,
    );
    assert.match(explained({ state: 'declined', local: '', remote: '' }), /^a connection: not direct/);
  });

  test('when it waits: by who has the other end', () => {
    const waiting = (remote: string, remoteHost: string): string =>
      explained({ state: 'waiting', remote, remoteHost }).replace(/^.*not direct yet: /, '');
    assert.match(waiting('127.0.0.1:80', '127.0.0.1'), /^the program at the other end, on this host, has not offered/);
    assert.match(waiting('10.0.0.2:6379', '10.0.0.2'), /^the program on the host of b has not offered it: /);
    assert.equal(waiting('10.0.0.3:80', '10.0.0.3'), 'peer c is down: it hung up');
    assert.equal(waiting('10.0.0.4:80', '10.0.0.4'), 'peer d has no direct connections');
    assert.match(waiting('192.0.2.1:80', '192.0.2.1'), /^192\.0\.2\.1 is an address of no peer/);
    assert.equal(waiting('', ''), 'it is closing');
  });

  test('when it is carried', () => {
    assert.match(explained({ state: 'waiting' }, [connection()]), /: not direct yet: it is carried/);
  });
});
