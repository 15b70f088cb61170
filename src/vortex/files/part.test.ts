import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import fc from 'fast-check';
import { currentOwner, parseProcessStat } from '../../system/owner.ts';
import { Part } from './part.ts';
import { decodeNote, encodeNote } from './part-note.ts';
import type { FileOffer } from './protocol.ts';

/** In memory: waiting for a disk proves nothing here. */
const folder = mkdtempSync('/dev/shm/millrace-part-test-');
after(() => rmSync(folder, { recursive: true, force: true }));
const offer: FileOffer = { name: 'x', sizeBytes: 10, modifiedNs: '1' };
let count = 0;

function newTarget(): string {
  return join(folder, `file-${count++}`);
}

/** Leaves the first bytes of a file behind, as a transfer that broke. */
async function leave(target: string, bytes: string, of = offer): Promise<void> {
  await using part = await Part.open({ target, offer: of, force: false });
  await part.write(Buffer.from(bytes), 0);
}

describe('a part', () => {
  test('is not begun where a file or a folder has its name, unless by force', async () => {
    const target = newTarget();
    writeFileSync(target, 'old');
    await assert.rejects(Part.open({ target, offer, force: false }), /it exists \(--force replaces it\)/);
    await assert.rejects(Part.open({ target: folder, offer, force: true }), /it is a folder/);
    assert.equal(readFileSync(target, 'utf8'), 'old');
    await using part = await Part.open({ target, offer, force: true });
    await part.write(Buffer.from('new'), 0);
    assert.equal(readFileSync(target, 'utf8'), 'old');
    await part.publish();
    assert.equal(readFileSync(target, 'utf8'), 'new');
  });

  test('is not written through a conversation that somebody put there', async () => {
    const target = newTarget();
    const victim = newTarget();
    symlinkSync(victim, `${target}.millrace-part`);
    await assert.rejects(Part.open({ target, offer, force: false }), /ELOOP/);
    assert.ok(!existsSync(victim));
  });

  test('in a folder that does not exist is an error that says so', async () => {
    await assert.rejects(Part.open({ target: join(folder, 'no/file'), offer, force: false }), /ENOENT \(there is no/);
  });

  test('is one process at a time', async () => {
    const target = newTarget();
    const startTicks = parseProcessStat(readFileSync(`/proc/${process.ppid}/stat`, 'utf8'))?.startTicks ?? 0;
    const writer = { ...currentOwner(), pid: process.ppid, startTicks };
    writeFileSync(`${target}.millrace-note`, encodeNote({ offer, writer }));
    const already = new RegExp(`process ${process.ppid} is receiving it already`);
    await assert.rejects(Part.open({ target, offer, force: true }), already);
    // The same number, but another process: that one is dead.
    writeFileSync(`${target}.millrace-note`, encodeNote({ offer, writer: { ...writer, startTicks: startTicks + 1 } }));
    await using part = await Part.open({ target, offer, force: false });
    assert.equal(part.haveBytes, 0);
  });

  test('goes on where it broke, and leaves nothing beside the file', async () => {
    const target = newTarget();
    await leave(target, 'hello');
    assert.ok(!existsSync(target));
    await using part = await Part.open({ target, offer, force: false });
    assert.deepEqual([part.haveBytes, part.staleness], [5, undefined]);
    await part.write(Buffer.from('world'), 5);
    await part.publish();
    assert.equal(readFileSync(target, 'utf8'), 'helloworld');
    assert.deepEqual(
      readdirSync(folder).filter((name) => name.startsWith(`${target.slice(folder.length + 1)}.`)),
      [],
    );
  });

  test('of another file, or without a note, is begun afresh', async () => {
    for (const other of [
      { ...offer, sizeBytes: 11 },
      { ...offer, modifiedNs: '2' },
      { ...offer, name: 'y' },
      { ...offer, sizeBytes: undefined, modifiedNs: undefined },
    ]) {
      const target = newTarget();
      await leave(target, 'hello', other);
      await using part = await Part.open({ target, offer, force: false });
      assert.deepEqual([part.haveBytes, readFileSync(part.path, 'utf8')], [0, '']);
      assert.match(part.staleness ?? '', /another one by now/);
    }
    const target = newTarget();
    await leave(target, 'hello');
    rmSync(`${target}.millrace-note`);
    await using part = await Part.open({ target, offer, force: false });
    assert.equal(part.haveBytes, 0);
  });

  test('longer than its file is begun afresh', async () => {
    const target = newTarget();
    await leave(target, 'hello world, and more');
    await using part = await Part.open({ target, offer, force: false });
    assert.equal(part.haveBytes, 0);
  });

  test('does not replace a file that came while it grew', async () => {
    const target = newTarget();
    await using part = await Part.open({ target, offer, force: false });
    writeFileSync(target, 'mine');
    await assert.rejects(part.publish(), /it exists \(--force replaces it\)/);
    assert.equal(readFileSync(target, 'utf8'), 'mine');
    assert.ok(existsSync(part.path));
  });
});

describe('a note', () => {
  test('that is none is not believed, whatever it is', () => {
    for (const text of ['', '{', 'null', '[]', '{"v":2}', '{"v":1,"offer":{}}', ' '.repeat(10_000)]) {
      assert.equal(decodeNote(text), undefined);
    }
    fc.assert(
      fc.property(fc.json(), (text) => {
        assert.equal(decodeNote(text), undefined);
      }),
    );
  });

  test('comes back as it was', () => {
    const writer = currentOwner();
    const sizes = fc.record(
      { name: fc.constant('a b'), sizeBytes: fc.maxSafeNat(), modifiedNs: fc.nat().map(String) },
      { noNullPrototype: true },
    );
    fc.assert(
      fc.property(sizes, (of) => {
        assert.deepEqual(decodeNote(encodeNote({ offer: of, writer })), { offer: of, writer });
      }),
    );
  });
});
