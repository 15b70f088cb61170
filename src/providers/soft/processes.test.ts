// Several processes: atomics, idling, and ending without closing anything.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { connectPair } from '../../../test/conformance/connect.ts';
import { turn } from '../../../test/conformance/wait.ts';
import { startPeer } from './fixtures/other-process.ts';
import { openSoftPair, wires } from './fixtures/soft-pair.ts';
import { openSoftDevice } from './index.ts';

const bounded = { timeout: 30_000 };

/** Clock ticks of 10 ms that a process has used. */
function ticksOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return Number(fields[11]) + Number(fields[12]);
}

describe('several processes', () => {
  for (const wire of wires) {
    test(`over ${wire}, additions of two processes to one word are all there`, bounded, async () => {
      const adds = 2000;
      await using pair = openSoftPair(wire);
      const { left: device, runtimeDir } = pair;
      await using other = await startPeer(device, { wire, runtimeDir, adds });
      const { end } = other;
      // A second way to the same word, from this process.
      const [one, two] = [end.createQp(), end.createQp()];

      connectPair(one, two);
      for (let done = 0; done < adds; done++) {
        end.post((batch) => batch.fetchAdd(done, end.mr.address, end.mr.rkey, 1).sge(...end.at(64, 8)), one);
        assert.deepEqual(await end.sentStatuses(), [`${done}:SUCCESS`]);
        if (done % 16 === 0) await turn();
      }
      assert.equal(await other.nextLine(), 'added');
      assert.equal(new DataView(end.mr.memory.buffer).getBigUint64(0, true), BigInt(2 * adds));
    });

    test(`over ${wire}, a connected process that has nothing to do uses no CPU`, bounded, async () => {
      await using pair = openSoftPair(wire);
      const { left: device, runtimeDir } = pair;
      await using other = await startPeer(device, { wire, runtimeDir, qps: 8 });
      const { end, card, qps } = other;
      for (const qp of qps) end.post((batch) => batch.write(1, card.address, card.rkey).sge(...end.at(0, 8)), qp);
      await end.sent(8);
      const startTicks = ticksOf(other.pid);
      await sleep(500);
      const used = ticksOf(other.pid) - startTicks;
      assert.ok(used <= 3, `${used * 10} ms of CPU in half a second`);
      end.post((batch) => batch.send(2).sge(...end.at(0, 8)));
      assert.deepEqual(await end.sentStatuses(), ['2:SUCCESS']);
    });
  }

  test('a program that does not close its device ends all the same, and the next one removes its socket', async () => {
    await using pair = openSoftPair('shm');
    const { runtimeDir } = pair;
    const files = readdirSync(runtimeDir);
    const script = join(import.meta.dirname, 'fixtures/forget.ts');
    const { status, stderr } = spawnSync(process.execPath, [script, runtimeDir], { encoding: 'utf8', timeout: 10_000 });
    assert.deepEqual([status, stderr], [0, '']);
    using _ = openSoftDevice({ wire: 'shm', runtimeDir });
    assert.equal(readdirSync(runtimeDir).length, files.length + 1);
  });
});
