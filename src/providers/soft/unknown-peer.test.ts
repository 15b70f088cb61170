// Peers of another user, with which a device shares nothing.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, chownSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { Rig } from '../../../test/conformance/rig.ts';
import { settle } from '../../../test/conformance/wait.ts';
import { startPeer } from './fixtures/other-process.ts';
import { openSoftPair } from './fixtures/soft-pair.ts';

const NOBODY = 65_534;
const asNobody = ['setpriv', `--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups'];

/** Only root can become another user. */
function reasonToSkip(): string | undefined {
  if (process.getuid?.() !== 0) return 'becoming another user needs root';
  const probe = [process.execPath, '--version'];
  const { status } = spawnSync(asNobody[0] ?? '', [...asNobody.slice(1), ...probe]);
  return status === 0 ? undefined : 'setpriv cannot run this Node as another user';
}

const skip = reasonToSkip();

describe('another user', () => {
  test('is not connected over shm', { timeout: 30_000, ...(skip !== undefined && { skip }) }, async () => {
    await using pair = openSoftPair('shm');
    // The directory alone does not keep other users out: this one has become another user's.
    chownSync(pair.runtimeDir, NOBODY, NOBODY);
    using rig = Rig.build(pair);
    const impatient = { timeout: 12, retryCount: 1 };
    const options = { wire: 'shm', runtimeDir: pair.runtimeDir, prefix: asNobody, attributes: impatient } as const;
    await using other = await startPeer(pair.left, options);
    const { end, card } = other;
    end.receive(2, 0, 64);
    end.post((batch) => batch.write(1, card.address, card.rkey).sge(...end.at(0, 8)));
    assert.deepEqual(await end.sentStatuses(), ['1:RETRY_EXC_ERR']);
    assert.deepEqual(await end.receivedStatuses(), ['2:WR_FLUSH_ERR']);
    // Other connections go on.
    rig.left.post((batch) => batch.write(3, rig.right.mr.address, rig.right.mr.rkey).sge(...rig.left.at(0, 8)));
    assert.deepEqual(await rig.left.sentStatuses(), ['3:SUCCESS']);
    assert.deepEqual(await settle(rig.right.receiveCq, 10), []);
  });

  test('cannot even reach the socket of a device, whatever the directory allows', {
    ...(skip !== undefined && { skip }),
  }, async () => {
    await using pair = openSoftPair('shm');
    chmodSync(pair.runtimeDir, 0o777);
    const script = join(import.meta.dirname, 'fixtures/dial-in-process.ts');
    const words = [...asNobody, process.execPath, script, pair.runtimeDir];
    const { stdout } = spawnSync(words[0] ?? '', words.slice(1), { encoding: 'utf8' });
    assert.match(stdout, /^(EACCES\n)+$/);
  });
});
