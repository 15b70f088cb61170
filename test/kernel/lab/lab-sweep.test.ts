// Tests of what happens to a lab whose creator was killed, and to those beside it.

import assert from 'node:assert/strict';
import { type ChildProcessWithoutNullStreams, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { before, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { Lab, type LabRecord, listLabs, processCount, removeLab, sweep } from '../../../src/lab/index.ts';
import { findCgroup2Mount } from '../../../src/system/cgroup.ts';
import { labIds, recordFiles, remainsOf, sweepDeadTests, temporaryRunDir } from '../../../workbench/worlds/lab-runs.ts';

const creator = join(import.meta.dirname, 'lab-creator.ts');

interface Creator {
  readonly child: ChildProcessWithoutNullStreams;
  /** The next line it says, or null when it has ended. */
  readonly next: () => Promise<string | null>;
  readonly kill: () => Promise<void>;
}

function startCreator(runDir: string, hosts: number, mode: 'close' | 'wait' | 'persistent'): Creator {
  const child = spawn(process.execPath, [creator, runDir, String(hosts), mode]);
  child.stderr.pipe(process.stderr);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const exit = once(child, 'exit');
  return {
    child,
    next: async () => {
      const { done, value } = await lines.next();
      return done === true ? null : value;
    },
    kill: async () => {
      child.kill('SIGKILL');
      await exit;
    },
  };
}

/**
 * A run directory with a lab of a living process and a persistent one, which must survive whatever
 * a test does.
 */
async function inhabitedRunDir(): Promise<
  { readonly path: string; readonly bystanders: readonly string[] } & AsyncDisposable
> {
  const dir = temporaryRunDir();
  const persistent = await Lab.create({ runDir: dir.path, persistent: true, name: 'stays' });
  const alive = startCreator(dir.path, 2, 'wait');
  assert.equal(await alive.next(), 'begin');
  const aliveId = (await alive.next()) ?? '';
  return {
    path: dir.path,
    bystanders: [persistent.id, aliveId],
    [Symbol.asyncDispose]: async () => {
      const ids = labIds(dir.path);
      const remains = [persistent.id, aliveId].map((id) => remainsOf(id).length);
      const processes = processCount(join(findCgroup2Mount() ?? '', 'millrace', aliveId));
      alive.child.stdin.end();
      const said = await alive.next();
      await persistent.close();
      await sweep({ runDir: dir.path });
      const files = recordFiles(dir.path);
      dir[Symbol.dispose]();
      assert.deepEqual(ids.toSorted(), [persistent.id, aliveId].toSorted());
      assert.deepEqual(
        { remains, processes, said, files },
        { remains: [3, 3], processes: 1, said: 'closed', files: [] },
      );
    },
  };
}

before(sweepDeadTests);

test('a lab whose creator was killed is gone after the next creation, and only that lab', async () => {
  await using dir = await inhabitedRunDir();
  const dead = startCreator(dir.path, 3, 'wait');
  assert.equal(await dead.next(), 'begin');
  const deadId = (await dead.next()) ?? '';
  await dead.kill();
  assert.equal(remainsOf(deadId).length, 5);
  await using lab = await Lab.create({ runDir: dir.path });
  assert.deepEqual(lab.swept, { removed: [deadId], problems: [] });
  assert.deepEqual(remainsOf(deadId), []);
});

for (const hosts of [2, 5]) {
  test(`a creator of ${hosts} hosts may be killed at any moment of creation and closing`, async () => {
    await using dir = await inhabitedRunDir();
    const seen = new Set<string>();
    let killedHalfWay = 0;
    // Creation and closing take some 100 ms together; the last moments come after the end.
    for (let delayMs = 0; delayMs <= 120; delayMs += 8) {
      const victim = startCreator(dir.path, hosts, delayMs % 16 === 0 ? 'close' : 'persistent');
      assert.equal(await victim.next(), 'begin');
      await setTimeout(delayMs);
      await victim.kill();
      const left = labIds(dir.path).filter((id) => !dir.bystanders.includes(id));
      for (const id of left) seen.add(id);
      killedHalfWay += left.length;
      const { problems } = await sweep({ runDir: dir.path });
      assert.deepEqual(problems, []);
      // A lab that stays may have been finished before its creator was killed: then it stays.
      for (const { record, state } of listLabs(dir.path).labs) {
        if (dir.bystanders.includes(record.id)) continue;
        assert.equal(state, 'persistent');
        const { hosts: names, id } = record;
        assert.equal(remainsOf(id).length, names.length + 1 + (names.length > 2 ? 1 : 0));
        await removeLab(dir.path, record);
      }
      assert.equal(recordFiles(dir.path).length, dir.bystanders.length);
    }
    assert.ok(killedHalfWay > 0, 'no kill hit a lab half-way');
    // Nothing may appear afterwards either.
    assert.deepEqual([...seen].flatMap(remainsOf), []);
  });
}

test('sweepers and creators at the same time do not break each other', async () => {
  await using dir = await inhabitedRunDir();
  const victims = [2, 3, 2].map((hosts) => startCreator(dir.path, hosts, 'wait'));
  const ids = await Promise.all(victims.map(async ({ next }) => ((await next()) === 'begin' ? await next() : null)));
  await Promise.all(victims.map(({ kill }) => kill()));
  const others = [startCreator(dir.path, 2, 'close'), startCreator(dir.path, 3, 'close')];
  const reports = await Promise.all([
    sweep({ runDir: dir.path }),
    sweep({ runDir: dir.path }),
    sweep({ runDir: dir.path }),
  ]);
  assert.deepEqual(
    reports.flatMap(({ problems }) => problems),
    [],
  );
  for (const other of others) {
    const said = [await other.next(), await other.next(), await other.next()];
    assert.equal(said[2], 'closed', said.join(', '));
  }
  assert.deepEqual(
    ids.flatMap((id) => remainsOf(id ?? 'none')),
    [],
  );
});

test('a record without its namespaces, and one with half of them, are swept', async () => {
  using dir = temporaryRunDir();
  const lab = await Lab.create({ runDir: dir.path });
  const [file = ''] = recordFiles(dir.path);
  const record = JSON.parse(readFileSync(join(dir.path, 'lab', file), 'utf8')) as LabRecord;
  await lab.close();
  const writeDead = (id: string): void => {
    const owner = { ...record.owner, startTicks: 1 };
    writeFileSync(join(dir.path, 'lab', `${id}.json`), JSON.stringify({ ...record, id, owner }));
  };
  const id = lab.id;
  writeDead(id);
  execFileSync('ip', ['netns', 'add', `mr-${id}-b`]);
  const { removed } = await sweep({ runDir: dir.path });
  assert.deepEqual(removed, [id]);
  assert.deepEqual(remainsOf(id), []);
  writeDead(id);
  assert.deepEqual((await sweep({ runDir: dir.path })).removed, [id]);
  assert.deepEqual(recordFiles(dir.path), []);
});

test('namespaces and cgroups that no record names are not touched', async () => {
  using dir = temporaryRunDir();
  const dead = startCreator(dir.path, 2, 'wait');
  assert.equal(await dead.next(), 'begin');
  const id = (await dead.next()) ?? '';
  await dead.kill();
  const foreign = [`mr-foreign-${process.pid}`, `mr-${id}-c`, `mr-${id}-a-`];
  const foreignCgroup = join(findCgroup2Mount() ?? '', 'millrace', `foreign-${process.pid}`);
  for (const name of foreign) execFileSync('ip', ['netns', 'add', name]);
  mkdirSync(foreignCgroup);
  try {
    assert.deepEqual((await sweep({ runDir: dir.path })).removed, [id]);
    assert.ok(foreign.every((name) => existsSync(`/run/netns/${name}`)));
    assert.ok(existsSync(foreignCgroup));
  } finally {
    for (const name of foreign) execFileSync('ip', ['netns', 'del', name]);
    execFileSync('rmdir', [foreignCgroup]);
  }
  assert.deepEqual(remainsOf(id), []);
  await sweep({ runDir: dir.path });
});

test('a corrupt record and one from another pid namespace stop nothing and stay', async () => {
  using dir = temporaryRunDir();
  const first = await Lab.create({ runDir: dir.path });
  const file = (id: string): string => join(dir.path, 'lab', `${id}.json`);
  const elsewhere = JSON.parse(readFileSync(file(first.id), 'utf8')) as LabRecord;
  await first.close();
  writeFileSync(file('aaaaaaaa'), '{"version":1');
  writeFileSync(
    file('bbbbbbbb'),
    JSON.stringify({ ...elsewhere, id: 'bbbbbbbb', owner: { ...elsewhere.owner, namespaces: '1-2' } }),
  );
  await using lab = await Lab.create({ runDir: dir.path });
  assert.deepEqual(lab.swept.removed, []);
  assert.deepEqual(
    lab.swept.problems.map((problem) => problem.file),
    [file('aaaaaaaa')],
  );
  assert.ok(existsSync(file('bbbbbbbb')));
});
