import assert from 'node:assert/strict';
import { constants } from 'node:os';
import { describe, test } from 'node:test';
import { type Address, formatAddress, ip, Socket } from '../native/index.ts';
import { endpointOf } from '../steering/index.ts';
import { ConnectionEvents } from './connection-events.ts';
import { LaneNamespaces } from './lane-namespaces.ts';
import { ServerDialer } from './server-dialer.ts';

const { EACCES, ECONNREFUSED, EMFILE } = constants.errno;

describe('servers are dialed', () => {
  test('for clients at addresses of their peer’s host only, and shown those', () => {
    using listener = Socket.stream('ipv4');
    listener.bind(ip('127.0.0.1', 0));
    listener.listen();
    const server = listener.localAddress;
    const shown: string[] = [];
    const events = new ConnectionEvents(() => {});
    const steering = { setTrueClient: (_socket: Socket, client: Address) => void shown.push(formatAddress(client)) };
    using namespaces = new LaneNamespaces();
    const dialer = new ServerDialer({
      steering,
      events,
      namespaces,
      descriptors: { note: () => hasRoom },
      settings: { socketBufferBytes: 65_536, asksPackets: false },
    });
    let hasRoom = true;
    const dial = (client: string, peer: string): number => {
      const leg = dialer.dial(ip(client, 4711), server, peer);
      if (typeof leg === 'number') return leg;
      leg.socket.close();
      return 0;
    };
    const servers = [{ endpoint: formatAddress(server), netns: listener.netnsCookie }];
    assert.equal(dial('10.0.0.2', 'b'), ECONNREFUSED, 'nothing listens by this host’s account');
    dialer.setListeners([{ peers: ['c'], servers }]);
    assert.equal(dial('10.0.0.2', 'b'), ECONNREFUSED, 'it was announced to another peer');
    dialer.setListeners([{ peers: ['b', 'c'], servers }]);
    assert.equal(dial('10.0.0.2', 'b'), EACCES, 'the peer’s addresses are not known');
    dialer.setClients('b', ['10.0.0.2', 'fd00::2']);
    dialer.setClients('c', ['10.0.0.3']);
    for (const client of ['127.0.0.1', '10.0.0.3', '0.0.0.0', '::1']) assert.equal(dial(client, 'b'), EACCES, client);
    assert.equal(dial('10.0.0.2', 'c'), EACCES);
    assert.deepEqual(shown, []);
    assert.equal(dial('10.0.0.2', 'b'), 0);
    assert.equal(dial('fd00::2', 'b'), 0);
    assert.equal(dial('10.0.0.3', 'c'), 0);
    assert.deepEqual(shown, ['10.0.0.2:4711', '[fd00::2]:4711', '10.0.0.3:4711']);
    const [one] = servers;
    dialer.changeListeners({ kind: 'listenersChanged', list: 0, added: [], removed: [formatAddress(server)] });
    for (const [peer, client] of [['b', '10.0.0.2'] as const, ['c', '10.0.0.3'] as const]) {
      assert.equal(dial(client, peer), ECONNREFUSED, 'it listens no more');
    }
    dialer.changeListeners({ kind: 'listenersChanged', list: 1, added: servers, removed: [] });
    assert.equal(dial('10.0.0.2', 'b'), ECONNREFUSED, 'there is no such list');
    dialer.changeListeners({ kind: 'listenersChanged', list: 0, added: [one], removed: [] });
    assert.equal(dial('10.0.0.3', 'c'), 0);
    hasRoom = false;
    assert.equal(dial('10.0.0.2', 'b'), EMFILE, 'the reserve is for others');
    hasRoom = true;
    dialer.setClients('b', []);
    assert.equal(dial('10.0.0.2', 'b'), EACCES);
    assert.deepEqual([events.counters.opened, events.counters.refused], [4, 13]);
  });

  test('through gates only, where packets are asked: to where the peer’s packets got, as whom they came', () => {
    using listener = Socket.stream('ipv4');
    listener.bind(ip('127.0.0.1', 0));
    listener.listen();
    const shown: string[] = [];
    const steering = { setTrueClient: (_socket: Socket, client: Address) => void shown.push(formatAddress(client)) };
    using namespaces = new LaneNamespaces();
    const settings = { socketBufferBytes: 65_536, asksPackets: true };
    const descriptors = { note: () => true };
    const events = new ConnectionEvents(() => {});
    const dialer = new ServerDialer({ steering, events, namespaces, descriptors, settings });
    const dial = (client: string, to: string, peer: string): number => {
      const leg = dialer.dial(ip(client, 4711), ip(to, 80), peer);
      if (typeof leg === 'number') return leg;
      leg.socket.close();
      return 0;
    };
    const at = endpointOf(listener.localAddress);
    const gate = { from: '10.92.1.2', to: '10.0.0.2:80', at, netns: listener.netnsCookie, client: '10.0.0.1' };
    const elsewhere = { ...gate, to: '10.0.0.3:80', netns: gate.netns + 1 };
    dialer.setListeners([{ peers: ['b'], servers: [{ endpoint: '10.0.0.2:80', netns: gate.netns }] }]);
    dialer.setClients('b', ['10.92.1.2']);
    assert.equal(dial('10.92.1.2', '10.0.0.2', 'b'), EACCES, 'no packet has come');
    dialer.changeGates({ peer: 'b', opened: [gate, elsewhere], closed: [] });
    assert.equal(dial('10.92.1.2', '10.0.0.2', 'c'), EACCES, 'of another peer');
    assert.equal(dial('10.92.1.3', '10.0.0.2', 'b'), EACCES, 'from another address');
    assert.equal(dial('10.92.1.2', '10.0.0.9', 'b'), EACCES, 'to somewhere else');
    assert.equal(dial('10.92.1.2', '10.0.0.3', 'b'), ECONNREFUSED, 'to a namespace that is gone');
    assert.deepEqual(shown, []);
    assert.equal(dial('10.92.1.2', '10.0.0.2', 'b'), 0);
    assert.deepEqual(shown, ['10.0.0.1:4711']);
    dialer.changeGates({ peer: 'b', opened: [], closed: [{ from: gate.from, to: gate.to }] });
    assert.equal(dial('10.92.1.2', '10.0.0.2', 'b'), EACCES);
  });
});
