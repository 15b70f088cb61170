// Which device carries a link: the first that works, and not one that only comes up.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Joined } from './fixtures/joined.ts';

/** Breaks it, and waits until it is up again. */
async function breakOnce(joined: Joined): Promise<string> {
  const [dialer, acceptor] = joined.sessions;
  assert.ok(dialer !== undefined && acceptor !== undefined);
  const before = dialer.recoveries;
  joined.breakOne(0);
  await joined.until('it has recovered', () => dialer.recoveries > before && acceptor.state === 'up');
  return dialer.wire;
}

describe('the choice of a device', () => {
  test('a soft device of the same wire stands in for a card that is missing', async () => {
    await using joined = await Joined.up({ devices: ['soft-roce'], acceptor: { devices: ['card0', 'soft-roce'] } });
    assert.equal(joined.acceptor.sessions[0]?.wire, 'roce');
  });

  test('a device that comes up, carries nothing and breaks is given up for the next, however often it comes up', async () => {
    // Without a clock there are no pings, so nothing is carried.
    await using joined = await Joined.up({ devices: ['soft-roce', 'soft-tcp'] });
    assert.deepEqual([await breakOnce(joined), await breakOnce(joined)], ['roce', 'tcp']);
  });

  test('a device that has carried something is tried again', async () => {
    await using joined = await Joined.up({ devices: ['soft-roce', 'soft-tcp'] });
    for (let round = 0; round < 4; round++) {
      joined.hasClock = true;
      const { dialer } = joined;
      const heard = (): number => dialer.sessions[0]?.link?.heardNs ?? 0;
      const before = heard();
      await joined.until('a ping is answered', () => heard() > before);
      joined.hasClock = false;
      assert.equal(await breakOnce(joined), 'roce');
    }
  });
});
