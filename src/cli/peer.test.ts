import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { link, peer, status } from '../telemetry/fixtures/fake-status.ts';
import { fakeDaemon } from './fixtures/daemon.ts';

const peers = [
  peer({ links: [link({ bytesIn: 5 * 2 ** 20 }), link({ index: 1, lane: 1, state: 'recovering', recoveries: 2 })] }),
  peer({ name: 'c', state: 'down', reason: 'connect: ECONNREFUSED', links: [], isSecure: false }),
];
const source = { status: async () => status({ peers }) };

describe('millrace peer', () => {
  test('a wrong name is one line with the nearest right one', async () => {
    await using daemon = await fakeDaemon({ status: async () => status({ peers: [peer({ name: 'node-1' })] }) });
    const outcome = await daemon.run(['peer', 'show', 'node-2']);
    const stderr = 'millrace: there is no peer node-2 (did you mean node-1?)\n';
    assert.deepEqual(outcome, { code: 2, stdout: '', stderr });
  });

  test('lists all peers with state and reason', async () => {
    await using daemon = await fakeDaemon(source);
    const { code, stdout } = await daemon.run(['peer']);
    assert.equal(code, 0);
    const lines = stdout.trimEnd().split('\n');
    assert.match(lines[0] ?? '', /^Peer +Address +State +Since +Wire +Links +Streams +In +Out +Held +Reason$/);
    assert.match(lines[1] ?? '', /^b +10\.0\.0\.2:4790 +up +\d+d\d\dh +shm +1\/2 +4 +5\.0 MiB +2\.0 KiB +0$/);
    assert.match(lines[2] ?? '', /^c .* down .* - +0\/0 +0 .*connect: ECONNREFUSED$/);
  });

  test('shows one in detail, with its links', async () => {
    await using daemon = await fakeDaemon(source);
    const { stdout } = await daemon.run(['peer', 'show', 'b']);
    for (const line of [
      /^b$/m,
      /^ {2}state +up$/m,
      /^ {2}identity +proven by certificate$/m,
      /^ {2}listeners +3 announced$/m,
      /^ +0 +0 +up +shm, in place +2 +5\.0 MiB +1\.0 KiB +20\/10 +3\/1024 +0 +45 us +0$/m,
      /^ +1 +1 +recovering .* 2$/m,
    ]) {
      assert.match(stdout, line);
    }
    const down = await daemon.run(['peer', 'show', 'c']);
    assert.match(down.stdout, /state +down: connect: ECONNREFUSED\n[\s\S]*not proven: insecure\n[\s\S]*none yet/);
  });

  test('is one document for programs', async () => {
    await using daemon = await fakeDaemon(source);
    const { stdout } = await daemon.run(['peer', 'show', 'c', '--json']);
    assert.deepEqual(JSON.parse(stdout), { v: 1, peers: [peers[1]] });
  });

  test('says that there are none', async () => {
    await using daemon = await fakeDaemon({ status: async () => status({ peers: [] }) });
    assert.deepEqual(await daemon.run(['peer']), { code: 0, stdout: '', stderr: 'no peers are configured\n' });
  });

  test('makes certificates, too', async () => {
    await using daemon = await fakeDaemon();
    const { code, stdout } = await daemon.run(['peer', 'cert', '--help']);
    assert.equal(code, 0);
    assert.match(stdout, /Usage: millrace peer cert/);
  });
});
