// A program in a network namespace of its own, as in a container: steered by its cgroup, carried by the host's daemon.
// Runs beside other files: it mostly waits.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type Host, Lab } from '../../../src/lab/index.ts';
import { formatIpEndpoint, parseIpEndpoint, SteeringView } from '../../../src/steering/index.ts';
import { until } from '../../conformance/wait.ts';

const bin = fileURLToPath(new URL('../../../src/cli/bin.ts', import.meta.url));
const port = 7000;
const instance = `other-${process.pid}`;

interface StartedRelay extends AsyncDisposable {
  /** It has reached its peer, and can tell it who calls. */
  readonly peerUp: Promise<unknown>;
}

function startRelay(host: Host, name: string, rule: string, peer: string): StartedRelay {
  const own = ['--name', name, '--instance', `${instance}-${name}`, '--cgroup', host.cgroup, '--json'];
  const child = host.spawn(process.execPath, ['--no-warnings', bin, 'relay', ...own, '--rule', rule, '--peer', peer], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const exited = once(child, 'exit');
  const { promise: peerUp, resolve } = Promise.withResolvers<void>();
  child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
    if (chunk.includes('"peer-up"')) resolve();
  });
  return {
    peerUp,
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGTERM');
      await exited;
    },
  };
}

function isAnnounced(endpoint: string): boolean {
  try {
    using view = new SteeringView(`${instance}-a`);
    return view.announced.some((one) => formatIpEndpoint(one) === endpoint);
  } catch {
    // Not there yet.
    return false;
  }
}

test('a program in another network namespace is carried, and both ends see the true addresses', async () => {
  await using lab = await Lab.create({ hosts: 3 });
  const [a, b, c] = [lab.host('a'), lab.host('b'), lab.host('c')];
  const destination = formatIpEndpoint(parseIpEndpoint(`${b.ipv4}:${port}`));
  const serve = `require('net').createServer((s) => s.end(s.remoteAddress + ':' + s.remotePort)).listen(${port}, '0.0.0.0')`;
  const server = b.spawn(process.execPath, ['-e', serve], { stdio: 'ignore' });
  const served = once(server, 'exit');
  await using relayA = startRelay(a, 'a', `connect to ${destination}`, `b=${b.ipv4}:4790`);
  await using relayB = startRelay(b, 'b', 'pass', `a=${a.ipv4}:4790`);
  await Promise.all([relayA.peerUp, relayB.peerUp]);
  await until('b to announce its listener', () => isAnnounced(destination), 20_000);

  // In a's cgroup, and in c's namespace.
  const call = `const s = require('net').connect(${port}, '${b.ipv4}', () => process.stdout.write(
    s.localAddress + ':' + s.localPort + ' ' + s.remoteAddress + ':' + s.remotePort + ' '));
    s.pipe(process.stdout)`;
  const enter = `echo 0 > ${a.cgroup}/cgroup.procs && exec nsenter --net=${c.namespaceFile} "$@"`;
  const client = spawn('sh', ['-c', enter, 'sh', process.execPath, '-e', call], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [here, there, seen] = (await text(client.stdout)).trim().split(' ');
  assert.ok(here?.startsWith(`${c.ipv4}:`), here);
  assert.equal(there, destination);
  assert.equal(seen, here);
  using view = new SteeringView(`${instance}-a`);
  assert.equal(view.counters.carried, 1);
  server.kill();
  await served;
});
