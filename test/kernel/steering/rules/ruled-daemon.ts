// A program for a host: a relay that takes its rules from standard input, a list in JSON a line, or changes them all the time after `flip`.

import { createInterface } from 'node:readline';
import { startDaemon } from '../../../../src/relay/index.ts';
import { parseRule, type SteerRule } from '../../../../src/steering/index.ts';

const [name = '', instance = '', cgroup = '', peer = ''] = process.argv.slice(2);
const [peerName = '', peerHost = ''] = peer.split('=');
const flipMs = 50;

const daemon = await startDaemon({
  name,
  instance,
  cgroup,
  rules: [],
  peers: [{ name: peerName, host: peerHost, port: 4790 }],
});

let rules: readonly SteerRule[] = [];
let flips = 0;
let flipping: NodeJS.Timeout | undefined;

/** All, none, some by family, by port and by command. */
function flip(): void {
  const sets = [
    rules,
    [],
    rules.slice(1),
    [parseRule('pass to any:7302'), ...rules],
    [parseRule('connect to any command behaviours-dyna'), parseRule('pass to any')],
  ];
  daemon.steering.setRules(sets[++flips % sets.length] ?? []);
}

const input = createInterface({ input: process.stdin });
input.on('line', (line) => {
  if (line === 'flip') {
    flipping = setInterval(flip, flipMs);
    return;
  }
  rules = (JSON.parse(line) as readonly string[]).map(parseRule);
  daemon.steering.setRules(rules);
  process.stdout.write('set\n');
});

async function stop(): Promise<void> {
  clearInterval(flipping);
  input.close();
  await daemon.close();
  process.stdin.destroy();
  process.stdout.write(`${flips} flips\n`);
}

process.once('SIGTERM', () => void stop());
process.stdout.write('ready\n');
