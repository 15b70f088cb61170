// Fills an array that another process or host reads (vortex-receiver.ts). Run it with Node 24,
// before the receiver:
//
//   node examples/vortex-sender.ts

import { openSender } from '../src/vortex/index.ts'; // outside: 'millrace/vortex'

const onListening = (port: number): void => console.log(`waiting on port ${port}`);
const options = { device: process.env.DEVICE, onListening }; // without a device: TCP
await using stream = await openSender(Number(process.argv[2] ?? 40104), 8 * 2 ** 24, options);
const numbers = stream.array(Float64Array);
for (let index = 0; index < numbers.length; index++) numbers[index] = index;
console.log(`delivered sum: ${((numbers.length - 1) * numbers.length) / 2}`);
stream.finish();
await stream.done();
