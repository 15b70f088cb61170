import assert from 'node:assert/strict';
import { createReadStream, existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Rig } from '../../../../test/conformance/rig.ts';
import { until } from '../../../../test/conformance/wait.ts';
import { openRemoteDevice } from '../../../providers/index.ts';
import { replay } from '../../../providers/recording/replay.ts';
import { softProvider } from '../../../providers/soft/index.ts';
import { BackendProcess } from '../fixtures/backend-process.ts';

test('a backend records what its guests do, each in a file of its own, and that can be replayed', {
  timeout: 30_000,
}, async () => {
  await using first = await BackendProcess.start();
  const record = join(first.folder, 'recording');
  await using backend = await BackendProcess.start({ record });
  for (const file of [record, `${record}.2`]) {
    const device = openRemoteDevice('soft-shm', { socketPath: backend.socketPath });
    using rig = Rig.build({ left: device, right: device });
    rig.right.receive(1, 0, 100);
    rig.left.put(0, 'recorded');
    rig.left.post((batch) => batch.sendWithImm(2, 99).sge(...rig.left.at(0, 8)));
    rig.left.post((batch) => batch.write(3, rig.right.mr.address, rig.right.mr.rkey).sge(...rig.left.at(0, 8)));
    assert.equal((await rig.right.received())[0]?.imm, 99);
    await rig.left.sent(2);
    device.close();
    await until('the file is written', () => existsSync(file) && statSync(file).size > 0);
    // There is memory of the guest's in it.
    assert.equal(statSync(file).mode & 0o777, 0o600);
    const report = await replay(createReadStream(file), { provider: softProvider, device: 'soft-tcp' });
    assert.deepEqual(report.differences, []);
    assert.deepEqual([report.requests, report.completions, report.skipped], [3, 3, 0]);
  }
});
