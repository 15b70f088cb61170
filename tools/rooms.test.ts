import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import { type Room, room, roomProblems } from './rooms.ts';

/** What the check says of a tree with these files. */
function problemsOf(files: Readonly<Record<string, string>>, table: readonly Room[]): string[] {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-rooms-'));
  try {
    for (const [file, text] of Object.entries(files)) {
      mkdirSync(join(folder, dirname(file)), { recursive: true });
      writeFileSync(join(folder, file), text);
    }
    return roomProblems(folder, table);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const low = room('src/low', 'below');
const high = room('src/high', 'above', 'src/low');
const usesLow = { 'src/high/index.ts': "import { a } from '../low/index.ts';\n", 'src/low/index.ts': '' };

describe('the check of rooms', () => {
  test('an import that the table allows is fine, and so are tests, fixtures and the errors', () => {
    const files = {
      ...usesLow,
      'src/errors.ts': '',
      'src/low/a.ts': "import { E } from '../errors.ts';\n",
      'src/low/a.test.ts': "import { b } from '../high/b.ts';\n",
      'src/low/fixtures/f.ts': "import { b } from '../../high/b.ts';\n",
    };
    assert.deepEqual(problemsOf(files, [low, high]), []);
  });

  test('an import that points up is named with its line', () => {
    const [problem = '', ...others] = problemsOf(
      { ...usesLow, 'src/low/a.ts': "// A file.\nimport { b } from '../high/index.ts';\n" },
      [low, high],
    );
    assert.deepEqual(others, []);
    assert.match(problem, /^src\/low\/a\.ts:2: import .*\n {4}src\/low may not import src\/high$/);
  });

  test('an import past the index is named, also one by import()', () => {
    const files = { ...usesLow, 'src/low/a.ts': '', 'src/high/b.ts': "await import('../low/a.ts');\n" };
    assert.match(
      problemsOf(files, [low, high]).join(),
      /src\/high\/b\.ts:1: .*\n {4}import src\/low\/index\.ts instead$/,
    );
  });

  test('a room inside another one is a room of its own', () => {
    const inner = room('src/low/inner', 'inside');
    const files = { ...usesLow, 'src/low/a.ts': "import { c } from './inner/c.ts';\n", 'src/low/inner/c.ts': '' };
    assert.match(problemsOf(files, [low, high, inner]).join(), /src\/low may not import src\/low\/inner/);
  });

  test('a circle in the table, a permission that nobody uses and a file in no room are problems', () => {
    const circle = [room('src/low', 'below', 'src/high'), high];
    const files = { ...usesLow, 'src/low/a.ts': "import { b } from '../high/index.ts';\n" };
    assert.match(problemsOf(files, circle).join(), /a cycle: src\/low -> src\/high -> src\/low/);
    assert.match(problemsOf({ 'src/low/a.ts': '' }, [low, high]).join(), /src\/high may import src\/low and does not/);
    assert.match(problemsOf({ 'src/loose.ts': '' }, []).join(), /src\/loose\.ts: it is in no room/);
  });
});
