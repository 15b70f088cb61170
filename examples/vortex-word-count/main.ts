// Counts the words of a text between two hosts: one writes it, the other counts, and neither has
// all of it in memory. Run it as root, with Node 24:
//
//   node examples/vortex-word-count/main.ts [SIZE_MIB]
//
// The hosts are network namespaces of this machine (`millrace lab`). On hosts of your own, run
// sender.ts and receiver.ts.

import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { Lab } from '../../src/lab/index.ts'; // outside: 'millrace/lab'

type Counts = Readonly<Record<string, number>>;

const sizeMib = process.argv[2] ?? '128';
await using lab = await Lab.create({ hosts: ['writer', 'reader'] });

function start(host: string, program: string, ...args: string[]): AsyncIterator<string> {
  const file = join(import.meta.dirname, program);
  const child: ChildProcess = lab.host(host).spawn(process.execPath, [file, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  if (child.stdout === null) throw new Error(`${program} has no output`);
  return createInterface({ input: child.stdout })[Symbol.asyncIterator]();
}

async function answer<T>(lines: AsyncIterator<string>): Promise<T> {
  const { value, done } = await lines.next();
  if (done === true) throw new Error('a program ended too early');
  return JSON.parse(value) as T;
}

const sender = start('writer', 'sender.ts', '0', sizeMib);
const { port } = await answer<{ port: number }>(sender);
const receiver = start('reader', 'receiver.ts', lab.host('writer').ipv4, String(port));
const [written, read] = await Promise.all([
  answer<{ counts: Counts }>(sender),
  answer<{ sizeBytes: number; grownBytes: number; counts: Counts }>(receiver),
]);

const words = Object.entries(read.counts).sort(([, left], [, right]) => right - left);
const total = words.reduce((sum, [, count]) => sum + count, 0);
const isRight = Object.entries(written.counts).every(([word, count]) => (read.counts[word] ?? 0) === count);
const top = words.slice(0, 5).map(([word, count]) => `${word} ${count}`);
const mib = (bytes: number): string => (bytes / 2 ** 20).toFixed(0);
console.log(`${total} words in ${mib(read.sizeBytes)} MiB, most often: ${top.join(', ')}`);
console.log(`the reader's memory grew by ${mib(read.grownBytes)} MiB`);
console.log(isRight ? 'every word was counted as often as it was written' : 'THE COUNTS DIFFER');
process.exitCode = isRight ? 0 : 1;
