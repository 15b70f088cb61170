import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { Party, peer } from './fixtures/party.ts';
import { helloLine, Parrot } from './fixtures/raw-peer.ts';
import { makeNonce } from './handshake.ts';

const refusal = '{"kind":"refused","reason":"not today"}\n';

describe('dialing a peer', { concurrency: true }, () => {
  for (const [what, words] of [
    ['refuses', refusal],
    // To be up for a moment is no reason to hurry, or two daemons that do not agree would never
    // rest.
    ['answers, and refuses as soon as it is up', `${helloLine('b', { nonce: makeNonce() })}${refusal}`],
  ] as const) {
    test(`a peer that ${what} is dialed with growing delays`, async () => {
      await using parrot = await Parrot.start(words);
      await using a = await Party.start({ name: 'a', peers: [peer('b', parrot.port)] });
      await eventually('it was called four times', () => parrot.calledMs.length >= 4);
      const pausesMs = parrot.calledMs.slice(1, 4).map((atMs, index) => atMs - (parrot.calledMs[index] ?? 0));
      // A timer is never early; how late it is depends on what else the machine does. Accepting may
      // be late, too.
      for (const [index, leastMs] of [100, 200, 400].entries()) {
        assert.ok((pausesMs[index] ?? 0) > leastMs * 0.8, `pauses of ${pausesMs.join(', ')} ms`);
      }
      assert.equal(a.errors.length, 1, 'the same problem is told once');
      assert.match(a.errors[0] ?? '', /^peer b at 127.0.0.1 port \d+ refused this daemon: not today$/);
    });
  }

  test('a peer that leaves is dialed again at once, however often it does', async () => {
    await using parrot = await Parrot.start(
      `${helloLine('b', { nonce: makeNonce() })}{"kind":"bye","reason":"starting again"}\n`,
    );
    await using a = await Party.start({ name: 'a', peers: [peer('b', parrot.port)] });
    await eventually('it was up many times', () => a.incarnations.length >= 8);
    const firstMs = parrot.calledMs[0] ?? 0;
    const tookMs = (parrot.calledMs[7] ?? 0) - firstMs;
    // With pauses that double it would be nearly eight seconds.
    assert.ok(tookMs < 6000, `eight calls took ${tookMs} ms`);
    assert.deepEqual(a.errors, []);
  });

  test('a peer that was removed is not dialed any more', async () => {
    await using parrot = await Parrot.start(refusal);
    await using a = await Party.start({ name: 'a', peers: [peer('b', parrot.port)] });
    await eventually('it was called', () => a.stateOf('b') === 'down');
    a.plane.setPeers([]);
    const { length } = parrot.calledMs;
    await using other = await Parrot.start(refusal);
    a.plane.setPeers([peer('c', other.port)]);
    await eventually('the other was called three times', () => other.calledMs.length >= 3);
    assert.equal(parrot.calledMs.length, length);
  });
});
