// A program for a host: `ADDRESS PORT COUNT [at-once]` opens connections one after the other, asks
// on each, prints how often it got which answer, and holds them until its input ends.

import { once } from 'node:events';
import { connect } from 'node:net';

const [address = '', port, count, atOnce] = process.argv.slice(2);

/** `answered`, or the code of the error. */
async function ask(): Promise<string> {
  const socket = connect({ host: address, port: Number(port), noDelay: true });
  try {
    await once(socket, 'connect');
    socket.write('?'.repeat(16));
    await once(socket, 'data');
    socket.on('error', () => {});
    return 'answered';
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? String(error);
  }
}

const answers: string[] = [];
const asking = Array.from({ length: Number(count) }, () => async () => void answers.push(await ask()));
if (atOnce === undefined) for (const one of asking) await one();
else await Promise.all(asking.map((one) => one()));
const counts = Object.fromEntries(
  Object.entries(Object.groupBy(answers, (one) => one)).map(([k, v]) => [k, v?.length]),
);
process.stdout.write(`${JSON.stringify(counts)}\n`);
await once(process.stdin.resume(), 'end');
process.exit();
