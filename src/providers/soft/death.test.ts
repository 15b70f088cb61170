// A peer process that is killed: how soon that is detected, and what is left of it.
// Runs alone: it measures how soon an end is detected.

import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { describe, test } from 'node:test';
import { until } from '../../../test/conformance/wait.ts';
import type { Completion } from '../index.ts';
import { startPeer } from './fixtures/other-process.ts';
import { linkedWires, openSoftPair } from './fixtures/soft-pair.ts';

/** Within which the end of a peer must be detected. */
const DETECT_MS = 100;
const bounded = { timeout: 30_000 };

describe('a peer process', () => {
  for (const wire of linkedWires) {
    test(
      `over ${wire}, one that is killed is detected within ${DETECT_MS} ms, and nothing hangs`,
      bounded,
      async () => {
        await using pair = openSoftPair(wire);
        const { left: device, runtimeDir } = pair;
        const filesBefore = readdirSync(runtimeDir);
        const dead: number[] = [];
        device.events.on('qpFatal', ({ qpNumber }) => dead.push(qpNumber));
        await using other = await startPeer(device, { wire, runtimeDir, qps: 4 });
        const { end, qps, card } = other;
        for (const qp of qps) {
          end.receive(qp.number, 0, 64, qp);
          end.post((batch) => batch.write(1, card.address, card.rkey).sge(...end.at(0, 64)), qp);
        }
        assert.deepEqual(
          await end.sentStatuses(4),
          Array.from({ length: 4 }, () => '1:SUCCESS'),
        );
        // Four receives are there: what comes after them has to wait.
        for (const qp of qps) {
          end.post((batch) => {
            for (let wrId = 0; wrId < 10; wrId++) batch.send(wrId).sge(...end.at(0, 64));
          }, qp);
        }
        await end.sent(16);
        other.child.kill('SIGKILL');
        const tookMs = await until('all QPs in ERR', () => qps.every(({ state }) => state === 'ERR'));
        assert.ok(tookMs < DETECT_MS, `it took ${tookMs.toFixed(1)} ms`);
        const sent = await end.sent(24);
        for (const qp of qps) {
          const statuses = ofQp(sent, qp.number);
          assert.ok(/^4:(RETRY_EXC_ERR|WR_FLUSH_ERR)$/.test(statuses[0] ?? ''), statuses[0]);
          assert.deepEqual(
            statuses.slice(1),
            [5, 6, 7, 8, 9].map((wrId) => `${wrId}:WR_FLUSH_ERR`),
          );
        }
        const received = await end.received(4);
        assert.deepEqual(new Set(received.map(({ status }) => status)), new Set(['WR_FLUSH_ERR']));
        assert.deepEqual(new Set(dead), new Set(qps.map(({ number }) => number)));
        await until('its files swept', () => readdirSync(runtimeDir).length === filesBefore.length);
        assert.deepEqual(readdirSync(runtimeDir).sort(), [...filesBefore].sort());
        // The device goes on: with the other one here, and with a new process.
        await using next = await startPeer(device, { wire, runtimeDir });
        next.end.post((batch) => batch.write(1, next.card.address, next.card.rkey).sge(...next.end.at(0, 64)));
        assert.deepEqual(await next.end.sentStatuses(), ['1:SUCCESS']);
      },
    );
  }
});

function ofQp(completions: readonly Completion[], qpNumber: number): string[] {
  return completions.filter((one) => one.qpNumber === qpNumber).map(({ wrId, status }) => `${wrId}:${status}`);
}
