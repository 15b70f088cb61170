import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import type { ToLane } from '../../lane/index.ts';
import type { HeardSyn, Knock, Passage } from '../../steering/index.ts';
import { formatIpEndpoint, parseIpEndpoint } from '../../steering/index.ts';
import type { GateMessage, KnockMessage } from '../control/index.ts';
import { Gates } from './gates.ts';
import { Knocker } from './knocker.ts';
import { sealOf } from './seal.ts';

const server = parseIpEndpoint('10.0.0.2:6379');
const passage: Passage = { netns: 1, from: '', to: server };
const inside = { endpoint: parseIpEndpoint('10.92.2.5:6379'), netns: 7 };

/**
 * A network of two hosts: a knocks, b may hear it. What the daemons say waits until it is handed
 * over.
 */
class Network implements Disposable {
  /** Whether SYNs arrive at b, and answers at a. */
  arrives = true;
  isAnswered = true;
  /** The address that SYNs have at b. */
  seenAs = '192.0.2.1';
  whyNot = '';
  readonly admitted: string[] = [];
  readonly reached: string[] = [];
  readonly lanes: ToLane[] = [];
  readonly refused: string[] = [];
  readonly toB: KnockMessage[] = [];
  readonly toA: GateMessage[] = [];
  readonly knocker: Knocker;
  readonly gates: Gates;
  readonly #syns = new Map<number, HeardSyn>();
  #sequence = 0x8000_0000;

  constructor() {
    this.knocker = new Knocker({
      admissions: {
        admit: ({ to }, source) => {
          this.admitted.push(`${source} ${formatIpEndpoint(to)}`);
          return 0;
        },
        withdraw: ({ to }) => void this.admitted.push(`not ${formatIpEndpoint(to)}`),
        knock: ({ to }) => this.#knock(to),
      },
      netns: passage.netns,
      namespaceOf: () => undefined,
      peerOf: ({ address }) => (address === server.address ? 'b' : undefined),
      idle: 16,
      send: (_peer, message) => this.toB.push(message) > 0,
      refuse: (peer, reason) => void this.refused.push(`${peer}: ${reason}`),
      onReached: (to, peer) => void this.reached.push(`${formatIpEndpoint(to)} ${peer}`),
    });
    this.gates = new Gates({
      admissions: {
        heard: (tag) => this.#syns.get(tag),
        forget: ({ sequence }) => void this.#syns.delete(tagOf(sequence)),
      },
      isServed: (netns) => netns === inside.netns,
      whyNot: () => this.whyNot,
      tellLanes: (message) => void this.lanes.push(message),
      settled: async () => {},
      send: (_peer, message) => void this.toA.push(message),
      refuse: (peer, reason) => void this.refused.push(`${peer}: ${reason}`),
    });
  }

  /** A SYN of somebody arrives at b. */
  hear(sequence: number, client: string): void {
    const syn = { heardNs: 1, netns: inside.netns, server: inside.endpoint, sequence, answer: answerTo(sequence) };
    this.#syns.set(tagOf(sequence), { ...syn, client: parseIpEndpoint(`${client}:40000`) });
  }

  /** Until nobody has anything to say. */
  async talk(): Promise<void> {
    while (this.toA.length + this.toB.length > 0) {
      for (const message of this.toB.splice(0)) this.gates.hear('a', message);
      for (const message of this.toA.splice(0)) this.knocker.hear('b', message);
      await nextTurn();
    }
  }

  #knock(to: Passage['to']): Knock {
    this.#sequence += 4099;
    const sequence = this.#sequence;
    if (this.arrives && formatIpEndpoint(to) === formatIpEndpoint(server)) this.hear(sequence, this.seenAs);
    const answer = this.isAnswered ? answerTo(sequence) : undefined;
    const knock = { sequence, tag: tagOf(sequence), source: '10.0.0.1', answer, close: () => {} };
    return knock as unknown as Knock;
  }

  [Symbol.dispose](): void {
    this.knocker[Symbol.dispose]();
    this.gates[Symbol.dispose]();
  }
}

const tagOf = (sequence: number): number => sequence % 16_384;
const answerTo = (sequence: number): number => (sequence * 7) >>> 0;

describe('admission', () => {
  test('a SYN that arrives opens a gate to where it arrived, for the address that it had there', async () => {
    using network = new Network();
    network.knocker.announced(server);
    await network.talk();
    await network.knocker.asked(server);
    assert.deepEqual(network.admitted, ['10.0.0.1 10.0.0.2:6379']);
    const gate = {
      from: '10.0.0.1',
      to: '10.0.0.2:6379',
      at: inside.endpoint,
      netns: inside.netns,
      client: '192.0.2.1',
    };
    assert.deepEqual(network.lanes, [{ kind: 'gates', peer: 'a', opened: [gate], closed: [] }]);
    assert.deepEqual([network.reached, network.refused], [[], []]);
  });

  test('what was not announced is told when it is reached', async () => {
    using network = new Network();
    network.knocker.wanted(passage);
    network.knocker.wanted({ ...passage, to: parseIpEndpoint('10.0.0.9:1') });
    network.knocker.wanted({ ...passage, netns: 2 });
    await network.talk();
    assert.deepEqual(network.reached, ['10.0.0.2:6379 b']);
    assert.equal(network.admitted.length, 1);
  });

  test('a server that the peer may not reach has no gate, and the peer is told why', async () => {
    using network = new Network();
    network.whyNot = 'accept line 1 (deny)';
    network.knocker.announced(server);
    await network.talk();
    assert.deepEqual([network.admitted, network.lanes], [[], []]);
    assert.equal(network.knocker.whyNot(server), 'peer b: accept line 1 (deny)');
  });

  test('a SYN that is not answered opens nothing, whoever heard it', async () => {
    using network = new Network();
    network.isAnswered = false;
    network.knocker.announced(server);
    await network.talk();
    assert.deepEqual([network.admitted, network.lanes], [[], []]);
  });

  test('a peer that says to have heard what it did not is refused', async () => {
    using network = new Network();
    network.arrives = false;
    network.knocker.announced(server);
    const [knock] = network.toB.splice(0);
    assert.ok(knock?.kind === 'knock');
    // It knows the last bits of the sequence number, and guesses the others.
    const key = '0'.repeat(32);
    network.knocker.hear('b', { kind: 'heard', number: knock.number, seal: sealOf(knock.tag, key) });
    assert.equal(network.toB.splice(0)[0]?.kind, 'sequence');
    network.knocker.hear('b', { kind: 'gate', number: knock.number, key });
    assert.deepEqual(network.admitted, []);
    assert.deepEqual(network.refused, ['b: a SYN that it says to have heard, and has not']);
  });

  test('a gate before the sequence number was told, and one of another peer, open nothing', () => {
    using network = new Network();
    network.knocker.announced(server);
    const [knock] = network.toB.splice(0);
    const gate = { kind: 'gate', number: knock?.number ?? 0, key: '0'.repeat(32) } as const;
    network.knocker.hear('c', gate);
    assert.deepEqual(network.refused, []);
    network.knocker.hear('b', gate);
    assert.deepEqual([network.admitted, network.refused.length], [[], 1]);
  });

  test('a peer cannot have the gate of a SYN that another host sent, and may not guess for long', async () => {
    using network = new Network();
    const victim = 0xdead_beef;
    for (let number = 1; network.refused.length === 0; number++) {
      assert.ok(number < 100);
      network.hear(victim, '10.0.0.3');
      network.gates.hear('a', { kind: 'knock', number, tag: tagOf(victim), from: '10.0.0.3', to: server });
      assert.equal(network.toA.splice(0)[0]?.kind, 'heard');
      const sequence = (tagOf(victim) + 16_384 * number) >>> 0;
      network.gates.hear('a', { kind: 'sequence', number, sequence, answer: answerTo(victim) });
      await nextTurn();
      for (const message of network.toA.splice(0)) assert.equal(message.kind, 'closed');
    }
    assert.deepEqual(network.lanes, []);
  });

  test('a SYN with a forged source opens no gate: its answer went to somebody else', async () => {
    using network = new Network();
    const forged = 0x1234_5678;
    network.hear(forged, '10.0.0.3');
    network.gates.hear('a', { kind: 'knock', number: 1, tag: tagOf(forged), from: '10.0.0.3', to: server });
    network.gates.hear('a', { kind: 'sequence', number: 1, sequence: forged, answer: 0 });
    await nextTurn();
    assert.deepEqual(
      network.toA.map(({ kind }) => kind),
      ['heard', 'closed'],
    );
    assert.deepEqual(network.lanes, []);
  });

  test('a peer cannot make its seal anew of the sequence number that it was told', () => {
    using network = new Network();
    network.arrives = false;
    network.knocker.announced(server);
    const number = network.toB.splice(0)[0]?.number ?? 0;
    network.knocker.hear('b', { kind: 'heard', number, seal: '0'.repeat(64) });
    const [told] = network.toB.splice(0);
    assert.ok(told?.kind === 'sequence');
    const key = '0'.repeat(32);
    network.knocker.hear('b', { kind: 'heard', number, seal: sealOf(told.sequence, key) });
    network.knocker.hear('b', { kind: 'gate', number, key });
    assert.deepEqual([network.admitted, network.refused], [[], ['b: two seals of one SYN']]);
  });

  test('knocks that are heard and never proven do not keep others out for long', async () => {
    using network = new Network();
    const knock = (number: number): GateMessage | undefined => {
      network.hear(number, '10.0.0.1');
      network.gates.hear('a', { kind: 'knock', number, tag: tagOf(number), from: '10.0.0.1', to: server });
      return network.toA.splice(0)[0];
    };
    for (let number = 1; number <= 256; number++) assert.equal(knock(number)?.kind, 'heard');
    assert.equal(knock(257)?.kind, 'closed');
    await eventually('the first are forgotten', () => knock(257)?.kind === 'heard');
    // One that comes after that is no mistake that ends the connection.
    network.gates.hear('a', { kind: 'sequence', number: 1, sequence: 1, answer: answerTo(1) });
    await nextTurn();
    assert.deepEqual([network.toA.map(({ kind }) => kind), network.refused], [['closed'], []]);
  });

  test('what the peer withdraws is not carried from other namespaces, either', async () => {
    using network = new Network();
    network.knocker.announced(server);
    network.knocker.wanted({ ...passage, from: '10.0.0.9' });
    await network.talk();
    assert.equal(network.admitted.length, 2);
    network.knocker.withdrawn(server);
    assert.deepEqual(network.admitted.slice(2), ['not 10.0.0.2:6379', 'not 10.0.0.2:6379']);
    assert.deepEqual(network.reached, ['10.0.0.2:6379 b', '10.0.0.2:6379 undefined']);
  });

  test('two knocks of one number break the protocol', () => {
    using network = new Network();
    const knock = { kind: 'knock', number: 2, tag: 1, from: '10.0.0.1', to: server } as const;
    network.gates.hear('a', knock);
    network.gates.hear('a', knock);
    assert.equal(network.refused.length, 1);
  });

  test('what is under way ends with the peer, and is no mistake when the answer comes late', async () => {
    using network = new Network();
    network.knocker.announced(server);
    network.knocker.peerDown('b');
    assert.equal(network.knocker.whyNot(server), 'peer b is not connected');
    await network.talk();
    assert.deepEqual(network.refused, []);
  });
});
