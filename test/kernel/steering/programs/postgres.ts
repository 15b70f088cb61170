// PostgreSQL: pgbench with a fixed seed, a COPY in and out, and a query that is cancelled; compared
// by the tables' contents.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { appendFileSync, chownSync, existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import { RunningProgram } from '../../../../workbench/worlds/running-program.ts';
import { temporaryFolder } from '../../../../workbench/worlds/temporary-folder.ts';
import type { World } from '../../../../workbench/worlds/world.ts';

const port = 5432;
const rows = 100_000;
/** The server refuses to be root. */
const account = 'postgres';
const asUser = ['--reuid', account, '--regid', account, '--clear-groups', '--'];

function findBin(): string {
  const versions = existsSync('/usr/lib/postgresql') ? readdirSync('/usr/lib/postgresql') : [];
  const newest = versions.sort((left, right) => Number(right) - Number(left))[0];
  assert.ok(newest, 'PostgreSQL is not installed; run: npm run setup');
  return join('/usr/lib/postgresql', newest, 'bin');
}

function idOf(flag: '-u' | '-g'): number {
  return Number(spawnSync('id', [flag, account], { encoding: 'utf8' }).stdout);
}

function userFolder(): ReturnType<typeof temporaryFolder> {
  const folder = temporaryFolder('postgres');
  chownSync(folder.path, idOf('-u'), idOf('-g'));
  return folder;
}

function runHere(folder: string, command: string, args: readonly string[]): void {
  const { status, stderr } = spawnSync(command, args, { encoding: 'utf8', cwd: folder, timeout: 30_000 });
  assert.equal(status, 0, stderr);
}

/** What initdb makes, which takes longer than a copy of it. */
let cluster: ReturnType<typeof temporaryFolder> | undefined;
after(() => cluster?.[Symbol.dispose]());

function makeCluster(bin: string, data: string): void {
  if (cluster === undefined) {
    cluster = userFolder();
    const made = join(cluster.path, 'data');
    const words = [join(bin, 'initdb'), '-D', made, '-A', 'trust', '-N', '--no-locale'];
    runHere(cluster.path, 'setpriv', [...asUser, ...words]);
    appendFileSync(join(made, 'pg_hba.conf'), 'host all all all trust\n');
  }
  runHere(cluster.path, 'cp', ['--archive', join(cluster.path, 'data'), data]);
}

export async function tryPostgres(world: World): Promise<unknown> {
  using folder = userFolder();
  const bin = findBin();
  const data = join(folder.path, 'data');
  makeCluster(bin, data);
  const words = ['-D', data, '-h', '*', '-k', folder.path, '-p', String(port), '-c', 'fsync=off'];
  await using server = RunningProgram.start(world.b, 'setpriv', [...asUser, join(bin, 'postgres'), ...words], {
    endWith: 'SIGINT',
    cwd: folder.path,
  });
  await world.listening(port);
  const to = (address: string): string[] => ['-h', address, '-p', String(port), '-U', account];
  const psql = (address: string, query: string, input = ''): Promise<string> =>
    world.call(join(bin, 'psql'), [...to(address), '-qAtX', '-d', account, '-c', query], input);
  const pgbench = (...args: string[]): Promise<string> =>
    world.call(join(bin, 'pgbench'), [...to(world.b.ipv4), ...args, account]);
  // The port is open before the server lets anybody in.
  for (;;) {
    const { code } = await world.b.run(join(bin, 'pg_isready'), to(folder.path));
    if (code === 0) break;
    assert.equal(server.hasExited, false, server.stderr);
  }
  await pgbench('-i', '-q', '-s', '1');
  const ran = await pgbench('-n', '-c', '8', '-j', '2', '-t', '100', '--random-seed=7');
  const prepared = await pgbench('-n', '-S', '-c', '4', '-t', '500', '-M', 'prepared', '--random-seed=7');
  await psql(world.b.ipv6, 'create table copied (id int, words text)');
  const lines = Array.from({ length: rows }, (_, id) => `${id}\trow number ${id} of a table that is copied`);
  await psql(world.b.ipv6, 'copy copied from stdin', `${lines.join('\n')}\n`);
  const out = await psql(world.b.ipv4, 'copy (select * from copied order by id) to stdout');
  // The request to cancel comes on a connection of its own.
  const endless = [...to(world.b.ipv4), '-qAtX', '-d', account, '-c', 'select pg_sleep(15)'];
  const cancelled = await world.a.run('timeout', [
    '--foreground',
    '--signal=INT',
    '0.5',
    join(bin, 'psql'),
    ...endless,
  ]);
  return {
    cancelled: cancelled.stderr,
    processed: [ran, prepared].map((text) => /actually processed: (\S+)/.exec(text)?.[1]),
    sums: await psql(
      world.b.ipv4,
      `select (select sum(abalance) from pgbench_accounts), (select sum(tbalance) from pgbench_tellers),
              (select sum(bbalance) from pgbench_branches), (select sum(delta) from pgbench_history)`,
    ),
    isCopied: out === `${lines.join('\n')}\n`,
    client: await psql(world.b.ipv6, 'select inet_client_addr(), inet_server_addr()'),
  };
}
