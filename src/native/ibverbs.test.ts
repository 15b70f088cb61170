import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { ibverbs, ibvKinds, pathWords, stepWords } from './ibverbs.ts';
import { SharedMemory } from './index.ts';

/** Handles that nobody ever got: by place, by use, and by sign. */
const unknownHandles = [0, 1, 2, 0xf_ffff, 0x10_0001, 0x7fff_ffff, -1];

describe('libibverbs by handles', () => {
  test('handles that nobody got are refused by every call', () => {
    using memory = SharedMemory.create({ sizeBytes: 65_536 });
    const step = new Uint8Array(stepWords.count * 4);
    const path = new Uint8Array(pathWords.count * 4);
    for (const handle of unknownHandles) {
      const calls: readonly (() => unknown)[] = [
        () => ibverbs.ibvQueryDevice(handle),
        () => ibverbs.ibvQueryPort(handle, 1),
        () => ibverbs.ibvQueryGids(handle, new Uint8Array(64)),
        () => ibverbs.ibvTakeEvent(handle),
        () => ibverbs.ibvAllocPd(handle),
        () => ibverbs.ibvRegister(handle, memory.id, 0, 4096, 1),
        () => ibverbs.ibvCreateChannel(handle),
        () => ibverbs.ibvCreateCq(handle, 8, 0),
        () => ibverbs.ibvCreateSrq(handle, 8, 1),
        () => ibverbs.ibvSrqLimit(handle, 1),
        () => ibverbs.ibvCreateQp(handle, 2, handle, handle, 0, 1, 1, 1, 0, 0),
        () => ibverbs.ibvModifyQp(handle, step, path),
        () => ibverbs.ibvQueryState(handle),
        () => ibverbs.ibvCreateAh(handle, path),
        () => ibverbs.ibvPostSend(handle, memory.id, 20, 1),
        () => ibverbs.ibvPostReceive(handle, memory.id, 8, 1),
        () => ibverbs.ibvPostSrq(handle, memory.id, 8, 1),
        () => ibverbs.ibvPoll(handle, memory.id, 8),
        () => ibverbs.ibvArm(handle, 0),
        () => ibverbs.ibvTakeCompletionEvent(handle),
        ...Object.values(ibvKinds).map((kind) => () => ibverbs.ibvClose(handle, kind)),
      ];
      for (const call of calls) assert.throws(call, RangeError, `${handle} ${call.toString()}`);
    }
    assert.throws(() => ibverbs.ibvClose(1, 99), /no such kind/);
  });

  test('a device that is not there is an errno', () => {
    if (!ibverbs.ibvIsAvailable()) return;
    const opened = ibverbs.ibvOpen('no-such-device');
    assert.ok(typeof opened === 'number' && opened < 0);
  });

  test('a machine without the library has no devices, and everything else works', () => {
    const dir = mkdtempSync(join(tmpdir(), 'millrace-no-ibverbs-'));
    try {
      // In the way of the real one, and no library.
      writeFileSync(join(dir, 'libibverbs.so.1'), 'not a library, but long enough to look like one'.repeat(4));
      const script = `
        import { ibverbs } from ${JSON.stringify(new URL('./ibverbs.ts', import.meta.url).href)};
        import { listDevices } from ${JSON.stringify(new URL('../providers/index.ts', import.meta.url).href)};
        const refused = [];
        for (const call of [() => ibverbs.ibvDevices(), () => ibverbs.ibvOpen('rxe0')]) {
          try { call(); } catch (error) { refused.push(error.code); }
        }
        console.log(JSON.stringify([ibverbs.ibvIsAvailable(), refused, listDevices().some((d) => d.provider === 'ibverbs')]));
      `;
      const env = { ...process.env, LD_LIBRARY_PATH: dir };
      const words = ['--no-warnings', '--input-type=module-typescript', '-e', script];
      const { stdout, stderr } = spawnSync(process.execPath, words, { env, encoding: 'utf8' });
      assert.equal(stdout.trim(), '[false,["ERR_NO_LIBIBVERBS","ERR_NO_LIBIBVERBS"],false]', stderr);
    } finally {
      rmSync(dir, { recursive: true });
    }
  });
});
