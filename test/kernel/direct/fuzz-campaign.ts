// Plays random sequences of socket calls for some time, with and without the library, and counts
// those that differ. fuzz.test.ts plays the first of the same sequences.
//
//   node test/kernel/direct/fuzz-campaign.ts KIND SEED SECONDS
//
// KIND is one of fuzz-worlds.ts. The last line says where the next campaign goes on.

import { parseArgs } from 'node:util';
import { FuzzProgram } from './fuzz-program.ts';
import { kinds } from './fuzz-worlds.ts';

const SEQUENCES = 200;
/** Each plays its own sequences; most of the time they wait for each other's processes. */
const PLAYERS = 3;
const MOST_SHOWN = 20;

const { positionals } = parseArgs({ allowPositionals: true });
const [kind = 'emulated', seed = '1', seconds = '60'] = positionals;
const start = kinds[kind];
if (start === undefined) throw new Error(`no kind "${kind}": use ${Object.keys(kinds).join(' or ')}`);

const program = new FuzzProgram();
const totals: Record<string, number> = {};
const different: number[] = [];
const shown: string[] = [];
let next = Number(seed);
let sequences = 0;

await using world = await start();
const end = performance.now() + Number(seconds) * 1000;
await Promise.all(
  Array.from({ length: PLAYERS }, async () => {
    while (performance.now() < end) {
      const first = next;
      next += SEQUENCES;
      const result = await program.compare(world.plain, world.direct, first, SEQUENCES);
      sequences += result.sequences;
      different.push(...result.different.map(({ seed }) => seed));
      shown.push(...result.different.map(({ text }) => text));
      for (const [name, count] of Object.entries(result.counters)) totals[name] = (totals[name] ?? 0) + count;
    }
  }),
);
for (const text of shown.slice(0, MOST_SHOWN)) console.log(text);
console.log(`${different.length} of ${sequences} differ: ${different.join(' ')}`);
console.log(`${JSON.stringify(totals)}; next seed: ${next}`);
process.exitCode = different.length === 0 ? 0 : 1;
