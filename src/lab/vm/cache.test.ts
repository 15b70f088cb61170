// Tests of the cache: damage, failing builders, several of them at once, and dead ones.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { currentOwner, ownerToken, thisMachine } from '../../system/owner.ts';
import { cachedFolder, defaultCacheDir } from './cache.ts';

function temporaryRoot(): { readonly path: string } & Disposable {
  const path = mkdtempSync(join(tmpdir(), 'millrace-cache-'));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

/** Counts how often it was built. */
function builder(): { readonly build: (folder: string) => Promise<void>; count: number } {
  const state = {
    count: 0,
    build: async (folder: string): Promise<void> => {
      state.count++;
      writeFileSync(join(folder, 'data'), 'precious');
    },
  };
  return state;
}

const entries = (root: string): readonly string[] => readdirSync(root).filter((name) => !name.endsWith('.lock'));

test('a builder that fails leaves nothing, and the next one is asked again', async () => {
  using root = temporaryRoot();
  const request = { root: root.path, kind: 'thing', key: 'aa' };
  const failing = async (folder: string): Promise<void> => {
    writeFileSync(join(folder, 'data'), 'half');
    throw new Error('no network');
  };
  await assert.rejects(cachedFolder({ ...request, build: failing }), /no network/);
  assert.deepEqual(entries(root.path), []);
  const folder = await cachedFolder({ ...request, build: builder().build });
  assert.equal(readFileSync(join(folder, 'data'), 'utf8'), 'precious');
});

test('an aborted builder publishes nothing', async () => {
  using root = temporaryRoot();
  const controller = new AbortController();
  const build = async (folder: string): Promise<void> => {
    writeFileSync(join(folder, 'data'), 'half');
    controller.abort();
  };
  const { signal } = controller;
  await assert.rejects(cachedFolder({ root: root.path, kind: 'thing', key: 'aa', build, signal }), {
    name: 'AbortError',
  });
  assert.deepEqual(entries(root.path), []);
});

test('what is there is not built again', async () => {
  using root = temporaryRoot();
  const state = builder();
  const request = { root: root.path, kind: 'thing', key: 'aa', build: state.build };
  assert.equal(await cachedFolder(request), await cachedFolder(request));
  assert.equal(state.count, 1);
});

const damages: readonly (readonly [string, (folder: string) => void])[] = [
  ['is shorter than it was', (folder) => truncateSync(join(folder, 'data'), 3)],
  ['has other bytes', (folder) => writeFileSync(join(folder, 'data'), 'PRECIOUS')],
  ['lost a file', (folder) => rmSync(join(folder, 'data'))],
  ['lost its manifest', (folder) => rmSync(join(folder, 'manifest.json'))],
  ['has a manifest that is cut off', (folder) => truncateSync(join(folder, 'manifest.json'), 20)],
  ['has a manifest of another version', (folder) => writeFileSync(join(folder, 'manifest.json'), '{"version":0}')],
];

for (const [what, damage] of damages) {
  test(`an entry that ${what} is built again`, async () => {
    using root = temporaryRoot();
    const state = builder();
    const request = { root: root.path, kind: 'thing', key: 'aa', build: state.build };
    damage(await cachedFolder(request));
    const folder = await cachedFolder(request);
    assert.equal(state.count, 2);
    assert.equal(readFileSync(join(folder, 'data'), 'utf8'), 'precious');
    assert.deepEqual(entries(root.path), ['thing-aa']);
  });
}

test('an entry whose files only have another time is fine', async () => {
  using root = temporaryRoot();
  const state = builder();
  const request = { root: root.path, kind: 'thing', key: 'aa', build: state.build };
  utimesSync(join(await cachedFolder(request), 'data'), 1, 1);
  await cachedFolder(request);
  assert.equal(state.count, 1);
});

test('of several that ask at once, one builds', async () => {
  using root = temporaryRoot();
  const state = builder();
  const request = { root: root.path, kind: 'thing', key: 'aa', build: state.build };
  const folders = await Promise.all(Array.from({ length: 4 }, () => cachedFolder(request)));
  assert.equal(new Set(folders).size, 1);
  assert.equal(state.count, 1);
});

test('the two entries of a kind that were used last are kept', async () => {
  using root = temporaryRoot();
  const request = { root: root.path, kind: 'thing', build: builder().build };
  for (const [key, second] of [
    ['aa', 1],
    ['bb', 2],
  ] as const) {
    utimesSync(await cachedFolder({ ...request, key }), second, second);
  }
  await cachedFolder({ ...request, kind: 'other', key: 'aa' });
  // Used again, so it is the other one that goes.
  await cachedFolder({ ...request, key: 'aa' });
  await cachedFolder({ ...request, key: 'cc' });
  assert.deepEqual(entries(root.path).toSorted(), ['other-aa', 'thing-aa', 'thing-cc']);
});

test('what a dead builder left is removed, what a living one has is not', async () => {
  using root = temporaryRoot();
  const { pid } = spawnSync('true');
  const dead = { ...currentOwner(), pid, startTicks: 1, bootId: thisMachine().bootId };
  const [deadName, ownName] = [`new.00000001.${ownerToken(dead)}`, `new.00000002.${ownerToken(currentOwner())}`];
  for (const name of [deadName, ownName]) mkdirSync(join(root.path, name));
  await cachedFolder({ root: root.path, kind: 'thing', key: 'aa', build: builder().build });
  assert.deepEqual(entries(root.path).toSorted(), [ownName, 'thing-aa'].toSorted());
});

test('root uses the machine’s cache, others their own', () => {
  assert.equal(defaultCacheDir({}, 0), '/var/cache/millrace/vm');
  assert.equal(defaultCacheDir({ XDG_CACHE_HOME: '/c' }, 1000), '/c/millrace/vm');
  assert.match(defaultCacheDir({ XDG_CACHE_HOME: '' }, 1000), /\/\.cache\/millrace\/vm$/);
});
