// A daemon in a cgroup of its own: takes connections that are steered from another one, and echoes
// what they say.
//
//   echo-daemon CGROUP INSTANCE ADDRESS DESTINATION

import { createServer } from 'node:net';
import { parseIpEndpoint, parseRules, Steering } from '../../../../src/steering/index.ts';

const [cgroup = '', instance = '', address = '', destination = ''] = process.argv.slice(2);
const steering = Steering.create({ instance, cgroup, rules: parseRules('connect redirect') });
const server = createServer((socket) => socket.pipe(socket)).listen(0, address, () => {
  const bound = server.address();
  if (bound === null || typeof bound === 'string') throw new Error('no address');
  steering.serve({ ipv4: { address, port: bound.port } });
  steering.announce(parseIpEndpoint(destination));
  process.stdout.write('ready\n');
});
process.once('SIGTERM', () => {
  process.stdout.write(`${JSON.stringify(steering.shortcutCounters())}\n`);
  steering.close();
  process.exit();
});
