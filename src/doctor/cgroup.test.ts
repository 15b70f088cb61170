import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { probeCgroup, TrialCgroup } from './cgroup.ts';
import { fakeMachine, systemError } from './fixtures/fake-machine.ts';

describe('cgroup v2', () => {
  // An ordinary directory makes and loses directories just as well.
  let mount = '';
  beforeEach(() => {
    mount = mkdtempSync(join(tmpdir(), 'millrace-cgroup-'));
  });
  afterEach(() => rmSync(mount, { recursive: true, force: true }));

  const machineWith = (path: string) =>
    fakeMachine({ files: { '/proc/self/mountinfo': `30 1 0:26 / ${path} rw,relatime - cgroup2 cgroup2 rw\n` } });

  test('without /proc the question stays open', async () => {
    const { finding, trial } = await probeCgroup(fakeMachine());
    assert.deepEqual([finding.answer, trial], ['unknown', null]);
  });

  test('when it is not mounted the fix is to mount it', async () => {
    const { finding, trial } = await probeCgroup(fakeMachine({ files: { '/proc/self/mountinfo': '' } }));
    assert.deepEqual([finding.answer, finding.detail, trial], ['no', 'not mounted', null]);
    assert.match(finding.fix ?? '', /mount -t cgroup2/);
  });

  test('a mount that has gone leaves the question open', async () => {
    const { finding } = await probeCgroup(machineWith(join(mount, 'gone')));
    assert.equal(finding.answer, 'unknown');
    assert.match(finding.detail, /ENOENT/);
  });

  test('a mount where nothing can be made is a no, for want of permission or not', async () => {
    for (const [code, isForbidden, fix] of [
      ['EACCES', true, /root/],
      ['EROFS', false, /remount,rw/],
    ] as const) {
      const { finding, trial } = await probeCgroup(machineWith(mount), undefined, () => {
        throw systemError(code);
      });
      assert.deepEqual([finding.answer, finding.isForbidden, trial], ['no', isForbidden, null]);
      assert.match(finding.detail, new RegExp(`no cgroup can be made there \\(${code}\\)`));
      assert.match(finding.fix ?? '', fix);
    }
  });

  test('a cgroup is made, and removed when closed, also twice', async () => {
    const { finding, trial } = await probeCgroup(machineWith(mount));
    assert.deepEqual([finding.answer, finding.detail], ['yes', mount]);
    assert.ok(trial && existsSync(trial.path));
    trial.close();
    trial.close();
    assert.deepEqual(readdirSync(mount), []);
  });

  test('two at a time do not share one', () => {
    using first = TrialCgroup.create(mount);
    using second = TrialCgroup.create(mount);
    assert.notEqual(first.path, second.path);
    assert.equal(readdirSync(mount).length, 2);
  });

  test('what a dead doctor left is removed, and nothing else', () => {
    const { pid } = spawnSync('true');
    const kept = ['lab', 'millrace-doctor', `millrace-doctor-${process.ppid}-0`, 'millrace-doctor-x-0'];
    for (const name of [...kept, `millrace-doctor-${pid}-0`]) mkdirSync(join(mount, name));
    TrialCgroup.create(mount).close();
    assert.deepEqual(readdirSync(mount).sort(), kept.sort());
  });
});
