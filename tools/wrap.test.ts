import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { wrapComments, wrapMarkdown } from './wrap.ts';

const words = (count: number, word = 'word'): string => Array.from({ length: count }, () => word).join(' ');
const widest = (text: string): number => Math.max(...text.split('\n').map((line) => line.length));

describe('wrapping at 100 columns', () => {
  test('what fits stays as it is, however it is broken', () => {
    const text = '// short\n// lines\n\ncode();\n';
    assert.equal(wrapComments(text), text);
    assert.equal(wrapMarkdown('short\nlines\n'), 'short\nlines\n');
  });

  test('a long comment is filled with the lines that follow it, and wrapping twice changes nothing', () => {
    const wrapped = wrapComments(`  // ${words(30)}\n  // end\n  code();\n`);
    assert.ok(widest(wrapped) <= 100);
    assert.match(wrapped, /word end\n {2}code\(\);\n$/);
    assert.equal(wrapComments(wrapped), wrapped);
  });

  test('a long one-line block becomes a block, and a comment behind code moves before it', () => {
    assert.match(wrapComments(`/** ${words(30)} */`), /^\/\*\*\n \* word[\s\S]*\n \*\/$/);
    assert.equal(wrapComments(`  ${'x'.repeat(60)}; // ${words(10)}`), `  // ${words(10)}\n  ${'x'.repeat(60)};`);
  });

  test('drawings, directives and strings with slashes stay', () => {
    for (const line of [
      `//   ${words(30)}`,
      `// biome-ignore lint: ${words(30)}`,
      `const url = 'http://${'x'.repeat(100)}';`,
      `const text = '${words(30)} // no comment';`,
    ]) {
      assert.equal(wrapComments(line), line);
    }
  });

  test('items of a list keep their indent; tables, headings and code are left alone', () => {
    const wrapped = wrapMarkdown(`- ${words(30)}\n- next\n`);
    assert.match(wrapped, /^- word.*\n {2}word.*\n- next\n$/);
    for (const text of [`| ${words(30)} |`, `# ${words(30)}`, `\`\`\`\n${words(30)}\n\`\`\``]) {
      assert.equal(wrapMarkdown(text), text);
    }
  });

  test('a word that is longer than a line has one to itself', () => {
    const link = `[x](${'y'.repeat(120)})`;
    assert.equal(wrapMarkdown(`see ${link} there`), `see\n${link}\nthere`);
  });
});
