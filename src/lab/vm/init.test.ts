// Tests of the guest's first script and of what it is told on the kernel's command line.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import fc from 'fast-check';
import { anyText } from '../../text/fixtures/any-text.ts';
import { initScript, kernelArguments } from './init.ts';

test('the script is one a shell understands', () => {
  execFileSync('sh', ['-n'], { input: initScript });
});

test('an argument has nothing the kernel would split or a shell would expand', () => {
  fc.assert(
    fc.property(anyText(40), (share) => {
      const words = kernelArguments({ name: 'vm', node: '/n', share, modules: [], keep: [] });
      assert.match(words[2] ?? '', /^mr\.share=[\w./+,:@\\-]*$/);
    }),
  );
});

test('the script gets paths back as they were', () => {
  const share = '/srv/a folder, "quoted" $HOME `x` *?/ünï\\040';
  const [, , word = ''] = kernelArguments({ name: 'vm', node: '/n', share, modules: [], keep: [] });
  const value = execFileSync('sh', ['-c', 'printf "%b" "$1"', 'sh', word.slice('mr.share='.length)]);
  assert.equal(value.toString(), share);
});

test('only what is given is passed on', () => {
  assert.deepEqual(kernelArguments({ name: 'vm', node: '/n', modules: [], keep: [] }), ['mr.name=vm', 'mr.node=/n']);
  const words = kernelArguments({ name: 'vm', node: '/n', modules: ['tun', 'bridge'], keep: ['/tmp/a', '/tmp/b'] });
  assert.deepEqual(words.slice(2), ['mr.modules=tun\\0040bridge', 'mr.keep=/tmp/a', 'mr.keep=/tmp/b']);
});
