import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import type { StatusSource } from '../status/daemon-status.ts';
import { connection, link, peer, status } from '../telemetry/fixtures/fake-status.ts';
import { fakeDaemon } from './fixtures/daemon.ts';
import { figuresOf, type Sample } from './top-figures.ts';

const MIB = 2 ** 20;

/** At `seconds`, a daemon that moves 1 MiB/s in, 2 MiB/s out and takes a quarter of a core. */
function lookAt(seconds: number): Sample {
  const moved = { bytesIn: seconds * MIB, bytesOut: seconds * 2 * MIB };
  const lane = {
    index: 0,
    connections: 1,
    turns: 0,
    sleeps: seconds * 10,
    heldBytes: 0,
    cpuSeconds: seconds / 4,
    stuckSeconds: 0,
  };
  return {
    atMs: seconds * 1000,
    status: status({
      peers: [peer({ links: [link({ ...moved, recordsIn: seconds * 50, recordsOut: seconds * 50 })] })],
      lanes: [lane],
      counters: { ...status().counters, ...moved },
      cpuSeconds: seconds / 4,
    }),
    connections: [
      connection({ local: '10.0.0.1:1' }),
      connection({ ...moved }),
      connection({ mode: 'plain' }),
      connection({ mode: 'direct', bytesIn: null, bytesOut: null, heldBytes: null }),
      connection({ mode: 'direct', local: '10.0.0.1:2', bytesIn: seconds, heldBytes: null }),
    ],
  };
}

/** Each look is a second after the one before, whatever the clock says. */
function movingSource(): { readonly source: Partial<StatusSource>; readonly nowMs: () => number } {
  let seconds = 10;
  return {
    source: {
      status: async () => lookAt(seconds).status,
      connections: async () => lookAt(seconds).connections,
    },
    nowMs: () => seconds++ * 1000,
  };
}

/** A terminal that keeps what was written, and calls `onPicture` for each that was drawn. */
function terminal(onPicture: () => void) {
  const stdin = Object.assign(new PassThrough(), {
    isTTY: true,
    rawModes: [] as boolean[],
    setRawMode: (isRaw: boolean) => void stdin.rawModes.push(isRaw),
  });
  const stdout = Object.assign(new PassThrough(), { isTTY: true, rows: 30, columns: 120 });
  stdout.on('data', (chunk) => {
    if (String(chunk).includes('busiest')) onPicture();
  });
  return { stdin, stdout, said: text(stdout) };
}

describe('rates', () => {
  test('are what moved between two samples', () => {
    const figures = figuresOf(lookAt(10), lookAt(12));
    const flow = { inPerSecond: MIB, outPerSecond: 2 * MIB };
    assert.deepEqual([figures.seconds, figures.cpu, figures.total], [2, 0.25, flow]);
    assert.deepEqual(figures.peers, [{ name: 'b', state: 'up', ...flow }]);
    assert.equal(figures.links[0]?.recordsPerSecond, 100);
    assert.deepEqual(figures.lanes[0], { index: 0, connections: 1, cpu: 0.25, sleepsPerSecond: 10, heldBytes: 0 });
    // The busiest first, and none whose bytes nobody counts.
    assert.deepEqual(
      figures.connections.map((one) => [one.connection.local, one.inPerSecond]),
      [
        ['10.0.0.1:40000', MIB],
        ['10.0.0.1:2', 1],
        ['10.0.0.1:1', 0],
      ],
    );
  });

  test('are never negative, when the daemon was restarted between the looks', () => {
    const figures = figuresOf(lookAt(100), { ...lookAt(1), atMs: 101_000 });
    assert.deepEqual([figures.cpu, figures.total.inPerSecond], [0.25, MIB]);
    assert.equal(figures.links[0]?.outPerSecond, 2 * MIB);
  });
});

describe('millrace top', () => {
  test('nonsense is a usage error', async () => {
    await using daemon = await fakeDaemon();
    for (const interval of ['0', 'soon', '-1', '1e9']) {
      const { code, stderr } = await daemon.run(['top', '--interval', interval]);
      assert.equal(code, 2);
      assert.match(stderr, /Give seconds/);
    }
  });

  test('shows one plain block with --once', async () => {
    const { source, nowMs } = movingSource();
    await using daemon = await fakeDaemon(source);
    const { code, stdout, stderr } = await daemon.run(['top', '--once', '--interval', '0.01'], { nowMs });
    assert.deepEqual([code, stderr], [0, '']);
    for (const line of [
      /^millrace 1\.2\.3 on a {2}ready {2}up \d+d\d\dh$/m,
      /^cpu 25\.0% {2}memory 80 MiB {2}held 4\.0 KiB of 32 MiB {2}peers 1 of 1 up$/m,
      /^in 1\.0 MiB\/s {2}out 2\.0 MiB\/s$/m,
      /^b +up +shm +0 +2 +1\.0 MiB\/s +2\.0 MiB\/s +100 +0\.3% +0 +45 us$/m,
      /^direct 3, 2 of them with peers {2}waiting 1 {2}programs 2$/m,
      /^busiest of 3 carried and mirrored connections$/m,
      /^direct +10\.0\.0\.1:2 .* -$/m,
      /^carried +10\.0\.0\.1:40000 +10\.0\.0\.2:6379 +b +shm +redis-cli\(4711\) +1\.0 MiB\/s +2\.0 MiB\/s +0$/m,
    ]) {
      assert.match(stdout, line);
    }
    assert.ok(!stdout.includes('\u001b'));
  });

  test('is one line a look for programs, until it is stopped', async () => {
    const { source, nowMs } = movingSource();
    await using daemon = await fakeDaemon(source);
    const controller = new AbortController();
    const stdout = new PassThrough();
    let lines = 0;
    stdout.on('data', () => void (++lines === 3 && controller.abort()));
    const said = text(stdout);
    const { code } = await daemon.run(['top', '--json', '--interval', '0.01'], {
      nowMs,
      stdout,
      signal: controller.signal,
    });
    stdout.end();
    assert.equal(code, 130);
    const [first = ''] = (await said).split('\n');
    const { v, total, memory } = JSON.parse(first);
    assert.deepEqual([v, total.inPerSecond, memory.heldBytes], [1, MIB, 4096]);
  });

  for (const [key, name, expected] of [
    ['q', 'q', 0],
    ['\u0003', 'Ctrl-C', 130],
  ] as const) {
    test(`refreshes in place on a terminal, ends with ${name} and gives the terminal back`, async () => {
      const { source, nowMs } = movingSource();
      await using daemon = await fakeDaemon(source);
      let pictures = 0;
      const { stdin, stdout, said } = terminal(() => void (++pictures === 2 && stdin.write(key)));
      const { code } = await daemon.run(['top', '--interval', '0.01'], { nowMs, stdin, stdout });
      stdout.end();
      assert.equal(code, expected);
      const shown = await said;
      assert.ok(shown.startsWith('\u001b[?1049h\u001b[?25l'));
      assert.ok(shown.endsWith('\u001b[?25h\u001b[?1049l'));
      assert.deepEqual(stdin.rawModes, [true, false]);
    });
  }

  test('gives the terminal back when the daemon goes away', async () => {
    const { source, nowMs } = movingSource();
    const daemon = await fakeDaemon(source);
    const { stdin, stdout, said } = terminal(() => void daemon[Symbol.asyncDispose]());
    const { code } = await daemon.run(['top', '--interval', '0.01'], { nowMs, stdin, stdout });
    stdout.end();
    assert.equal(code, 3);
    assert.ok((await said).endsWith('\u001b[?25h\u001b[?1049l'));
    await daemon[Symbol.asyncDispose]();
  });
});
