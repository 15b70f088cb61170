// A daemon in a cgroup of its own: takes connections that are steered from another one, and echoes
// what they say.
//
//   echo-daemon CGROUP INSTANCE ADDRESS DESTINATION

import { createServer } from 'node:net';
import { ip, Socket } from '../../../../src/native/index.ts';
import { LANE_BEAT_NS, LaneSteering, parseIpEndpoint, parseRules, Steering } from '../../../../src/steering/index.ts';

const [cgroup = '', instance = '', address = '', destination = ''] = process.argv.slice(2);
const steering = Steering.create({ instance, cgroup, rules: parseRules('connect redirect') });
const listener = Socket.stream('ipv4');
listener.bind(ip(address, 0));
const lane = new LaneSteering(instance, 0);
createServer((socket) => socket.pipe(socket)).listen({ fd: listener.fd }, () => {
  lane.serve(listener.netnsCookie, [listener]);
  lane.beat();
  setInterval(() => lane.beat(), LANE_BEAT_NS / 1e6);
  steering.serve(1);
  steering.announce(parseIpEndpoint(destination));
  process.stdout.write('ready\n');
});
process.once('SIGTERM', () => {
  process.stdout.write(`${JSON.stringify(steering.shortcutCounters())}\n`);
  steering.close();
  process.exit();
});
