import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { runCaptured } from './fixtures/captured-world.ts';

describe('dev', () => {
  test('a wrong name is one line with the nearest right one', async () => {
    const { code, stdout, stderr } = await runCaptured(['dev', 'show', 'soft-tpc']);
    assert.equal(code, 2);
    assert.equal(stdout, '');
    assert.match(
      stderr,
      /^millrace: open RDMA device soft-tpc: there is no such device \(did you mean soft-tcp\?\)\n$/,
    );
  });

  test('all devices are shown as ibv_devinfo does', async () => {
    const { code, stdout, stderr } = await runCaptured(['dev']);
    assert.equal(code, 0);
    assert.equal(stderr, '');
    for (const line of [/^hca_id: soft-shm$/m, /^hca_id: soft-tcp$/m, /^ {2}max_qps: +\d+$/m, /^ {2}port: 1$/m]) {
      assert.match(stdout, line);
    }
    assert.match(stdout, /^ {4}state: +ACTIVE$/m);
    assert.match(stdout, /^ {4}GID\[0\]: +\S*:\S+$/m);
  });

  test('one device is shown alone, and for programs', async () => {
    const { code, stdout } = await runCaptured(['dev', 'show', 'soft-tcp', '--json']);
    assert.equal(code, 0);
    const { v, devices } = JSON.parse(stdout);
    assert.equal(v, 1);
    assert.equal(devices.length, 1);
    const [{ name, provider, transport, attributes, ports }] = devices;
    assert.deepEqual([name, provider, transport], ['soft-tcp', 'soft', 'tcp']);
    assert.ok(attributes.maxQps >= 1000);
    assert.equal(ports[0].state, 'ACTIVE');
    assert.ok(ports[0].lid > 0);
    assert.equal(ports[0].gids.length, 1);
  });
});
