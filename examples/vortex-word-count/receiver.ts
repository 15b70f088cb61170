// Counts the words of a text as if all of it were in memory: it is one array, and takes the memory
// of a few blocks.
//
//   node receiver.ts HOST PORT

import { readFileSync } from 'node:fs';
import { openReceiver } from '../../src/vortex/index.ts'; // outside: 'millrace/vortex'
import { WordTrie } from './word-trie.ts';

const [host = '127.0.0.1', port = '40104'] = process.argv.slice(2);

/** The largest resident memory of this process so far, with the pages of the window. */
function mostBytes(): number {
  return Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]) * 1024;
}

await using stream = await openReceiver(host, Number(port));
const beforeBytes = mostBytes();
const trie = new WordTrie();
trie.add(stream.bytes);
const grownBytes = mostBytes() - beforeBytes;
await stream.done();
console.log(JSON.stringify({ sizeBytes: stream.sizeBytes, grownBytes, counts: Object.fromEntries(trie.counts()) }));
