// HAProxy between curl or wrk and nginx: bodies that are large, by HTTP, by plain TCP and with
// splice. nginx is on the client's host, so that both connections of a request are between hosts.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { eventually } from '../../../../workbench/worlds/eventually.ts';
import { RunningProgram } from '../../../../workbench/worlds/running-program.ts';
import { temporaryFolder } from '../../../../workbench/worlds/temporary-folder.ts';
import type { World } from '../../../../workbench/worlds/world.ts';

const nginxPort = 8188;
/** What HAProxy does on each of its ports. */
const modes = { 8180: 'mode http', 8181: 'mode tcp', 8182: 'mode http\n  option splice-auto' } as const;
const large = Buffer.alloc(10_000_000, randomBytes(999_983));
const uploaded = Buffer.alloc(3_000_000, 'an upload ');

function nginxConfiguration(folder: string): string {
  const kinds = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  return `
daemon off;
user nobody nogroup;
pid ${folder}/nginx.pid;
error_log stderr warn;
events { worker_connections 512; }
http {
  access_log off;
  sendfile on;
  keepalive_requests 1000000;
  client_max_body_size 10m;
  ${kinds.map((kind) => `${kind}_temp_path ${folder}/${kind};`).join('\n  ')}
  server {
    listen ${nginxPort};
    root ${folder}/www;
    location /kept/ { dav_methods PUT; }
  }
}
`;
}

function haproxyConfiguration(nginx: string): string {
  const listeners = Object.entries(modes).map(
    ([port, mode]) => `
listen on-${port}
  bind :::${port} v4v6
  ${mode}
  server nginx ${nginx}:${nginxPort}`,
  );
  return `global
  nbthread 2
defaults
  timeout connect 5s
  timeout client 30s
  timeout server 30s
${listeners.join('\n')}
`;
}

export async function tryHaproxy(world: World): Promise<unknown> {
  using folder = temporaryFolder('haproxy');
  const at = (name: string): string => join(folder.path, name);
  mkdirSync(at('www/kept'), { recursive: true });
  chmodSync(at('www/kept'), 0o777);
  writeFileSync(at('www/small'), 'small things\n');
  writeFileSync(at('www/large'), large);
  writeFileSync(at('upload'), uploaded);
  writeFileSync(at('nginx.conf'), nginxConfiguration(folder.path));
  writeFileSync(at('haproxy.cfg'), haproxyConfiguration(world.a.ipv4));
  await using nginx = RunningProgram.start(world.a, 'nginx', ['-c', at('nginx.conf'), '-e', 'stderr']);
  await using haproxy = RunningProgram.start(world.b, 'haproxy', ['-db', '-f', at('haproxy.cfg')]);
  await eventually('nginx answers', async () => {
    const { code } = await world.a.run('curl', ['-sf', `http://${world.a.ipv4}:${nginxPort}/small`]);
    return code === 0;
  });
  await world.listeningAll(Object.keys(modes).map(Number));
  const results = [];
  for (const port of Object.keys(modes)) {
    const address = port === '8181' ? `[${world.b.ipv6}]` : world.b.ipv4;
    const url = (path: string): string => `http://${address}:${port}/${path}`;
    results.push(`${port} ${await askWith(world, url, at)}`);
  }
  const wrk = await world.call('wrk', ['-t', '2', '-c', '20', '-d', '1s', `http://${world.b.ipv4}:8180/small`]);
  return {
    results,
    answered: Number(/(\d+) requests in/.exec(wrk)?.[1]) > 50,
    errors: wrk.match(/Socket errors.*|Non-2xx.*/g) ?? [],
    said: [nginx.stderr, haproxy.stderr],
  };
}

/**
 * Small answers, then large ones on the same connection, and something that is put and got back.
 */
async function askWith(world: World, url: (path: string) => string, at: (name: string) => string): Promise<string> {
  const curl = (...args: string[]): Promise<string> => world.call('curl', ['--silent', '--fail', ...args]);
  const small = ['--output', at('small-#1'), url('small?[1-20]')];
  const format = ['--write-out', '%{num_connects} %{http_code} %{size_download}\n'];
  const told = await curl(...format, ...small, '--output', at('large-#1'), url('large?[1-3]'));
  for (const number of [1, 2, 3]) assert.ok(readFileSync(at(`large-${number}`)).equals(large));
  await curl('--upload-file', at('upload'), url('kept/upload'));
  await curl('--output', at('back'), url('kept/upload'));
  assert.ok(readFileSync(at('back')).equals(uploaded));
  return told;
}
