// A peer process that is killed under way, or stopped and continued.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { until } from '../../../test/conformance/wait.ts';
import type { Completion } from '../index.ts';
import { startPeer } from './fixtures/other-process.ts';
import { linkedWires, openSoftPair, wires } from './fixtures/soft-pair.ts';

const bounded = { timeout: 30_000 };

describe('a peer process', () => {
  for (const wire of linkedWires) {
    test(`over ${wire}, one that is killed in the middle of a stream of requests ends them all`, bounded, async () => {
      await using pair = openSoftPair(wire);
      const { left: device, runtimeDir } = pair;
      await using other = await startPeer(device, { wire, runtimeDir });
      const { end, card, qps } = other;
      const [qp] = qps;
      assert.ok(qp);
      let posted = 0;
      let completed = 0;
      let failed = 0;
      const step = async (): Promise<void> => {
        // Never more than the queues hold.
        posted += end.tryPost((batch) => {
          for (let index = 0; index < 8; index++) {
            batch.write(posted + index, card.address, card.rkey).sge(...end.at(0, 32_768));
            batch.read(posted + index, card.address, card.rkey).sge(...end.at(32_768, 32_768));
          }
        });
        const some = await end.sent(Math.max(1, posted - completed - 64));
        completed += some.length;
        failed += some.filter(({ status }) => status !== 'SUCCESS').length;
      };
      for (let round = 0; round < 50; round++) await step();
      assert.equal(failed, 0);
      other.child.kill('SIGKILL');
      // Never yields to the event loop as long as there are completions: polling alone must do.
      const startMs = performance.now();
      while (qp.state !== 'ERR') {
        assert.ok(performance.now() - startMs < 5000, 'the end of the peer was not detected');
        await step();
      }
      const rest = await end.sent(posted - completed);
      const statuses = rest.map(({ status }) => status).join(' ');
      assert.match(statuses, /^(SUCCESS ?)*(RETRY_EXC_ERR ?)?(WR_FLUSH_ERR ?)*$/);
    });

    test(`over ${wire}, a loop over completions sees the end of a peer that is killed`, bounded, async () => {
      await using pair = openSoftPair(wire);
      const { left: device, runtimeDir } = pair;
      await using other = await startPeer(device, { wire, runtimeDir });
      const { end, card } = other;
      end.receive(7, 0, 64);
      // A QP that was never connected cannot see its peer end.
      end.post((batch) => batch.write(1, card.address, card.rkey).sge(...end.at(0, 8)));
      assert.deepEqual(await end.sentStatuses(), ['1:SUCCESS']);
      const seen: Completion[] = [];
      const reader = (async () => {
        for await (const completion of end.receiveCq) {
          seen.push(completion);
          break;
        }
      })();
      other.child.kill('SIGKILL');
      await reader;
      assert.deepEqual([seen[0]?.wrId, seen[0]?.status], [7, 'WR_FLUSH_ERR']);
    });
  }

  for (const wire of wires) {
    test(`over ${wire}, one that is stopped and continued is only slow`, bounded, async () => {
      await using pair = openSoftPair(wire);
      const { left: device, runtimeDir } = pair;
      await using other = await startPeer(device, { wire, runtimeDir });
      const { end, card, qps } = other;
      const [qp] = qps;
      assert.ok(qp);
      other.child.kill('SIGSTOP');
      await until('the process to be stopped', () => processState(other.pid) === 'T');
      end.bytes(0, 64).fill(5);
      end.post((batch) => {
        batch.send(1).sge(...end.at(0, 64));
        batch.write(2, card.address + 128, card.rkey).sge(...end.at(0, 64));
        batch.read(3, card.address + 128, card.rkey).sge(...end.at(1024, 64));
      });
      // Well beyond the time in which the end of a peer would have been detected (death.test.ts).
      for (let times = 0; times < 60; times++) {
        await sleep(5);
        assert.equal(qp.state, 'RTS');
      }
      other.child.kill('SIGCONT');
      assert.deepEqual(await end.sentStatuses(3), ['1:SUCCESS', '2:SUCCESS', '3:SUCCESS']);
      assert.ok(end.bytes(1024, 64).every((byte) => byte === 5));
    });
  }
});

function processState(pid: number): string {
  return readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.[0] ?? '';
}
