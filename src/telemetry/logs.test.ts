import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import {
  type ConnectionEvent,
  isConnectionHeard,
  publishConnection,
  publishDaemon,
  publishError,
  publishLink,
  publishPeer,
} from '../status/events.ts';
import { Logs, type LogsOptions } from './logs.ts';

/** Everything that a daemon may say, once. */
function publishAll(): void {
  publishDaemon({ what: 'ready', node: 'a', instance: 'millrace', detail: '' });
  publishPeer({ peer: 'b', address: '10.0.0.2:4790', state: 'down', reason: 'connect: ECONNREFUSED' });
  publishLink({ peer: 'b', link: 0, lane: 1, state: 'up', wire: 'shm', reason: '' });
  publishError({ where: 'etcd', message: 'watch /millrace: gone', code: 'ECONNRESET', peer: '' });
  publishConnection(opened);
}

const opened: ConnectionEvent = {
  what: 'opened',
  local: '10.0.0.1:40000',
  remote: '10.0.0.2:6379',
  direction: 'out',
  mode: 'carried',
  peer: 'b',
  wire: 'shm',
  command: 'redis-cli',
  pid: 4711,
  bytesOut: 0,
  bytesIn: 0,
  reason: '',
};

function captured(options: LogsOptions = {}): Disposable & { readonly logs: Logs; readonly lines: string[] } {
  const lines: string[] = [];
  const logs = new Logs({ destination: { write: (line) => void lines.push(line) }, ...options });
  return { logs, lines, [Symbol.dispose]: () => logs.close() };
}

describe('the log', () => {
  test('shows nothing that a program put into a message to fool its reader', () => {
    using world = captured({ format: 'text' });
    publishError({ where: 'x', message: 'a\u001b[2Jb\nERROR c', code: '', peer: '' });
    assert.equal(world.lines.length, 1);
    assert.match(world.lines[0] ?? '', /^[\d:.]{12} ERROR ab\\x0aERROR c\n$/);
  });

  test('has a JSON line with level, event and fields for what happens', () => {
    using world = captured({ node: 'a' });
    publishAll();
    const said = world.lines.map((line) => JSON.parse(line));
    assert.deepEqual(
      said.map(({ level, event, msg }) => [level, event, msg]),
      [
        ['info', 'daemon', 'daemon millrace on a: ready'],
        ['warn', 'peer', 'peer b (10.0.0.2:4790) is down: connect: ECONNREFUSED'],
        ['info', 'link', 'link 0 to b over shm is up'],
        ['error', 'error', 'watch /millrace: gone'],
      ],
    );
    assert.deepEqual([said[3].node, said[3].code, said[3].where], ['a', 'ECONNRESET', 'etcd']);
    assert.ok(Number.isFinite(Date.parse(said[0].time)));
  });

  test('tells of connections at debug only, and costs them nothing before', () => {
    using world = captured();
    assert.equal(isConnectionHeard(), false);
    world.logs.level = 'debug';
    assert.equal(isConnectionHeard(), true);
    publishConnection(opened);
    assert.match(world.lines[0] ?? '', /"msg":"redis-cli \(4711\) 10\.0\.0\.1:40000 -> 10\.0\.0\.2:6379 opened"/);
    world.logs.level = 'error';
    assert.equal(isConnectionHeard(), false);
    publishAll();
    assert.equal(world.lines.length, 2);
    assert.equal(world.logs.level, 'error');
  });

  test('says nothing once closed, and closing twice is harmless', () => {
    using world = captured({ level: 'debug' });
    world.logs.close();
    world.logs.close();
    publishAll();
    assert.deepEqual([world.lines, isConnectionHeard()], [[], false]);
  });

  test('has its last line on stderr when the process ends at once', () => {
    const program = `
      const { Logs } = await import(${JSON.stringify(join(import.meta.dirname, 'logs.ts'))});
      const { publishDaemon } = await import(${JSON.stringify(join(import.meta.dirname, '../status/events.ts'))});
      new Logs();
      publishDaemon({ what: 'stopped', node: 'a', instance: 'i', detail: 'x'.repeat(100_000) });
      process.kill(process.pid, 'SIGKILL');`;
    const { stderr } = spawnSync(process.execPath, ['--no-warnings', '--input-type=module', '-e', program], {
      encoding: 'utf8',
      maxBuffer: 1e6,
    });
    assert.match(stderr, /^\{"level":"info".*x{100}"\}\n$/);
  });
});
