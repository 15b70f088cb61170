// nginx with curl and wrk: 100 MB by sendfile, connections that are kept, and many clients at once.

import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { RunningProgram } from '../../../../workbench/worlds/running-program.ts';
import { temporaryFolder } from '../../../../workbench/worlds/temporary-folder.ts';
import type { World } from '../../../../workbench/worlds/world.ts';

const port = 8088;
const largeBytes = 100 * 1000 * 1000;
const small = 'small things\n';

function configuration(folder: string): string {
  const kinds = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  return `
daemon off;
user nobody nogroup;
worker_processes 2;
pid ${folder}/nginx.pid;
error_log stderr warn;
events { worker_connections 512; }
http {
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_timeout 30s;
  keepalive_requests 1000000;
  ${kinds.map((kind) => `${kind}_temp_path ${folder}/${kind};`).join('\n  ')}
  server { listen ${port}; listen [::]:${port}; root ${folder}/www; }
}
`;
}

export async function tryNginx(world: World): Promise<unknown> {
  using folder = temporaryFolder('nginx');
  const www = join(folder.path, 'www');
  mkdirSync(www);
  writeFileSync(join(www, 'small'), small);
  // Never whole in this process: it starts programs, each by a copy of itself.
  const large = join(www, 'large');
  const block = randomBytes(largeBytes / 100);
  for (let count = 0; count < 100; count++) appendFileSync(large, block);
  const file = join(folder.path, 'nginx.conf');
  writeFileSync(file, configuration(folder.path));
  await using server = RunningProgram.start(world.b, 'nginx', ['-c', file, '-e', 'stderr']);
  await world.listening(port);
  const url = (address: string, path: string): string => `http://${address}:${port}/${path}`;
  const curl = (...args: string[]): Promise<string> => world.call('curl', ['--silent', '--fail', ...args]);
  const downloads = [];
  for (const address of [world.b.ipv4, `[${world.b.ipv6}]`]) {
    const output = join(folder.path, 'downloaded');
    const told = await curl('--output', output, '--write-out', '%{http_code} %{size_download}', url(address, 'large'));
    downloads.push({ told, isRight: spawnSync('cmp', [large, output]).status === 0 });
  }
  const format = ['--write-out', '%{num_connects} %{http_code} %{remote_ip}\n'];
  const kept = await curl(...format, ...Array.from({ length: 20 }, () => url(world.b.ipv4, 'small')));
  const ranges = await curl('--range', '10-19,50000000-50000099', '--head', url(world.b.ipv4, 'large'));
  const wrk = await world.call('wrk', ['-t', '2', '-c', '50', '-d', '1s', url(world.b.ipv4, 'small')]);
  return {
    downloads,
    kept,
    ranges: ranges.match(/206 Partial Content/)?.[0],
    answered: Number(/(\d+) requests in/.exec(wrk)?.[1]) > 100,
    errors: wrk.match(/Socket errors.*|Non-2xx.*/g) ?? [],
    said: server.stderr,
  };
}
