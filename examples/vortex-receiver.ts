// Reads the array that vortex-sender.ts fills. Run it with Node 24, while the sender waits:
//
//   node examples/vortex-receiver.ts

import { openReceiver } from '../src/vortex/index.ts'; // outside: 'millrace/vortex'

await using stream = await openReceiver(process.argv[3] ?? '127.0.0.1', Number(process.argv[2] ?? 40104));
const numbers = stream.array(Float64Array);
let sum = 0;
for (let index = 0; index < numbers.length; index++) sum += numbers[index] ?? 0;
console.log(`received sum: ${sum}`);
await stream.done();
