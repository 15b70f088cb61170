import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { runCaptured } from '../../src/cli/fixtures/captured-world.ts';
import { workbenchCommands } from './commands.ts';

const run: typeof runCaptured = (args, overrides) => runCaptured(args, overrides, workbenchCommands);

describe('the commands of the workbench', () => {
  test('each explains itself', async () => {
    for (const { names } of workbenchCommands) {
      const { code, stdout } = await run([...names, '--help']);
      assert.equal(code, 0);
      assert.match(stdout, new RegExp(`Usage: millrace ${names.join(' ')}`));
    }
  });

  test('bench lists its rows for people and programs', async () => {
    const people = await run(['bench', '--list', 'native.pump.*']);
    assert.match(people.stdout, /^native\.pump\.64 /m);
    assert.doesNotMatch(people.stdout, /native\.epoll/);
    const programs = await run(['bench', '--list', '--json']);
    assert.ok(JSON.parse(programs.stdout).some(({ id }: { id: string }) => id === 'native.pump.128k'));
  });

  test('an unknown benchmark is one line and a usage error', async () => {
    const { code, stdout, stderr } = await run(['bench', 'nativ.crossing']);
    assert.equal(code, 2);
    assert.equal(stdout, '');
    assert.match(stderr, /^millrace: no benchmark 'nativ.crossing' \(did you mean native.crossing\?\).*\n$/);
  });

  test('a bench that is stopped says nothing and exits as interrupted', async () => {
    const { code, stdout } = await run(['bench', 'native.crossing'], { signal: AbortSignal.abort() });
    assert.equal(code, 130);
    assert.equal(stdout, '');
  });
});
