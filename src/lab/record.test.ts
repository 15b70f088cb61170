// Tests of the state file, above all of reading what others may have put there.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempDisposableSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { currentOwner, ownerToken, thisMachine } from '../system/owner.ts';
import {
  claimRecord,
  type LabRecord,
  listRecords,
  newLabId,
  parseRecord,
  readRecord,
  recordDir,
  removeDeadTemporaries,
  removeRecord,
  replaceRecord,
} from './record.ts';
import { labSpec } from './spec.ts';

function makeRecord(change: Partial<LabRecord> = {}): LabRecord {
  return { ...labSpec({}), id: newLabId(), owner: currentOwner(), createdAt: '2026-01-01T00:00:00.000Z', ...change };
}

function temporaryRunDir(): { readonly path: string } & Disposable {
  const dir = mkdtempDisposableSync(join(tmpdir(), 'millrace-record-'));
  mkdirSync(recordDir(dir.path));
  return { path: dir.path, [Symbol.dispose]: () => dir.remove() };
}

const valid = { version: 1, ...makeRecord({ id: '00c0ffee' }) };

const hostile: readonly (readonly [string, unknown])[] = [
  ['null', null],
  ['an array', []],
  ['a number', 1],
  ['an empty object', {}],
  ['another version', { ...valid, version: 2 }],
  ['an id that is a path', { ...valid, id: '../../../x' }],
  ['no id', { ...valid, id: undefined }],
  ['a host that is a path', { ...valid, hosts: ['a', '../../b'] }],
  ['hosts that are no strings', { ...valid, hosts: [1, 2] }],
  ['one host', { ...valid, hosts: ['a'] }],
  ['hosts that are an object', { ...valid, hosts: { length: 2 } }],
  ['a missing owner', { ...valid, owner: undefined }],
  ['an owner without a start time', { ...valid, owner: { pid: 1 } }],
  ['a name with a line break', { ...valid, name: 'a\nb' }],
  ['a date that is none', { ...valid, createdAt: 'yesterday-ish' }],
  ['an mtu of text', { ...valid, mtu: '1500' }],
];

for (const [what, value] of hostile) {
  test(`a record with ${what} is refused`, () => {
    assert.throws(() => parseRecord(JSON.stringify(value)));
  });
}

test('no text at all makes the parser do anything but throw or answer', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.json(),
        fc.json().map((json) => `{"version":1,"id":"00c0ffee","hosts":${json}}`),
      ),
      (text) => {
        try {
          parseRecord(text);
        } catch (error) {
          assert.ok(error instanceof Error);
        }
      },
    ),
  );
});

test('files that are no records are told and left alone, and do not hide the others', () => {
  using dir = temporaryRunDir();
  const good = makeRecord();
  assert.equal(claimRecord(dir.path, good), true);
  const file = (name: string): string => join(recordDir(dir.path), name);
  writeFileSync(file('aaaaaaaa.json'), '');
  writeFileSync(file('bbbbbbbb.json'), '{"version":1,');
  writeFileSync(file('cccccccc.json'), JSON.stringify(valid));
  writeFileSync(file('dddddddd.json'), ' '.repeat(100_000));
  symlinkSync(file(`${good.id}.json`), file('eeeeeeee.json'));
  mkdirSync(file('ffffffff.json'));
  execFileSync('mkfifo', [file('abababab.json')]);
  const before = readdirSync(recordDir(dir.path));
  const { records, problems } = listRecords(dir.path);
  assert.deepEqual(records, [good]);
  assert.equal(problems.length, 7);
  assert.match(problems.find((problem) => problem.file.includes('cccccccc'))?.reason ?? '', /record of lab 00c0ffee/);
  assert.deepEqual(readdirSync(recordDir(dir.path)), before);
});

test('a directory that does not exist holds no records', () => {
  assert.deepEqual(listRecords('/nonexistent/millrace'), { records: [], problems: [] });
  assert.equal(readRecord('/nonexistent/millrace', '00c0ffee'), null);
});

test('an id is claimed once', () => {
  using dir = temporaryRunDir();
  const record = makeRecord();
  assert.equal(claimRecord(dir.path, record), true);
  assert.equal(claimRecord(dir.path, { ...record, name: 'other' }), false);
  assert.deepEqual(readRecord(dir.path, record.id), record);
  assert.deepEqual(readdirSync(recordDir(dir.path)), [`${record.id}.json`]);
});

test('a record is replaced and removed, also twice', () => {
  using dir = temporaryRunDir();
  const record = makeRecord({ name: 'demo' });
  claimRecord(dir.path, record);
  replaceRecord(dir.path, { ...record, owner: null });
  assert.equal(readRecord(dir.path, record.id)?.owner, null);
  removeRecord(dir.path, record.id);
  removeRecord(dir.path, record.id);
  assert.deepEqual(listRecords(dir.path).records, []);
});

test('only dead writers’ unpublished files are removed', () => {
  using dir = temporaryRunDir();
  const file = (token: string): string => join(recordDir(dir.path), `00c0ffee.${token}.tmp`);
  const dead = file(ownerToken({ ...currentOwner(), startTicks: 1 }));
  const alive = file(ownerToken(currentOwner()));
  const elsewhere = file(ownerToken({ ...currentOwner(), namespaces: '1-2' }));
  const foreign = file('something');
  for (const name of [dead, alive, elsewhere, foreign]) writeFileSync(name, '');
  removeDeadTemporaries(dir.path, thisMachine());
  assert.deepEqual(
    [dead, alive, elsewhere, foreign].map((name) => existsSync(name)),
    [false, true, true, true],
  );
});
