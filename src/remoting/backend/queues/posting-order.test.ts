// A test that what a guest posts to different queues is posted in an order that its program can
// rely on.

import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Rig } from '../../../../test/conformance/rig.ts';
import { until } from '../../../../test/conformance/wait.ts';
import { openRemoteDevice } from '../../../providers/index.ts';
import { BackendProcess } from '../fixtures/backend-process.ts';

const ROUNDS = 50;

interface Call {
  readonly call: string;
  readonly id?: number;
  readonly qp?: number;
  readonly rows?: readonly unknown[];
}

function callsIn(file: string): readonly Call[] {
  if (!existsSync(file)) return [];
  // The last line may be under way.
  const lines = readFileSync(file, 'utf8').split('\n').slice(0, -1);
  return lines.map((line): Call => JSON.parse(line));
}

function isWhole(calls: readonly Call[]): boolean {
  const opened = calls.find(({ call }) => call === 'openDevice')?.id;
  return opened !== undefined && calls.some(({ call, id }) => call === 'close' && id === opened);
}

test('a receive is there before a send that was posted after it, whose answer it is for', {
  timeout: 30_000,
}, async () => {
  // Where threads sleep whenever they can, they find both at once.
  const folder = mkdtempSync(join(tmpdir(), 'millrace-order-'));
  using undo = new DisposableStack();
  undo.defer(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'recording');
  await using backend = await BackendProcess.start({ wait: 'event', record: file });
  const device = openRemoteDevice('soft-shm', { socketPath: backend.socketPath });
  {
    using rig = Rig.build({ left: device, right: device });
    const { left, right } = rig;
    for (let round = 0; round < ROUNDS; round++) {
      right.receive(round, 0, 8);
      left.receive(round, 0, 8);
      left.post((batch) => batch.send(round).sge(...left.at(0, 8)));
      await left.sent();
      await right.received();
    }
  }
  device.close();
  await until('the recording', () => isWhole(callsIn(file)));
  const calls = callsIn(file);
  const sender = calls.find(({ call }) => call === 'postSend')?.qp;
  let [sends, receives] = [0, 0];
  for (const { call, qp, rows = [] } of calls) {
    if (qp !== sender) continue;
    if (call === 'postReceive') receives += rows.length;
    if (call === 'postSend') sends += rows.length;
    assert.ok(sends <= receives, `send ${sends} was posted after ${receives} receives`);
  }
  assert.deepEqual([sends, receives], [ROUNDS, ROUNDS]);
});
