// Writes a long text into the window of a stream, word by word, and prints how often it wrote each
// word.
//
//   node sender.ts PORT SIZE_MIB

import { openSender } from '../../src/vortex/index.ts'; // outside: 'millrace/vortex'

const [port = '40104', sizeMib = '128'] = process.argv.slice(2);
const sizeBytes = Number(sizeMib) * 2 ** 20;
const syllables = ['ka', 'lo', 'mi', 'ne', 'ru', 'sha', 'te', 'vo', 'wen', 'xi'];
const words = Array.from({ length: 1000 }, (_, n) =>
  String(n).replaceAll(/\d/g, (digit) => syllables[Number(digit)] ?? ''),
);
const encoded = words.map((word) => new TextEncoder().encode(`${word} `));
const written = new Float64Array(words.length);

let state = 40104;
/**
 * The text is the same in every run. Small numbers are more frequent, as some words are in real
 * texts.
 */
function nextWord(): number {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
  const fraction = state / 2 ** 32;
  return Math.floor(fraction * fraction * words.length);
}

await using stream = await openSender(Number(port), sizeBytes, {
  device: process.env.DEVICE,
  blockBytes: 2 ** 20,
  onListening: (at) => console.log(JSON.stringify({ port: at })),
});
const text = stream.bytes;
let at = 0;
for (;;) {
  const word = nextWord();
  const letters = encoded[word] ?? new Uint8Array(0);
  if (at + letters.length > sizeBytes) break;
  for (let index = 0; index < letters.length; index++) text[at + index] = letters[index] ?? 0;
  at += letters.length;
  written[word] = (written[word] ?? 0) + 1;
}
for (; at < sizeBytes; at++) text[at] = 0x20;
stream.finish();
await stream.done();
const counts = Object.fromEntries(words.map((word, index) => [word, written[index] ?? 0]));
console.log(JSON.stringify({ counts }));
