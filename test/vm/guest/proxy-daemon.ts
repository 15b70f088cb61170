// A daemon for guests, in a process that loads little: `proxy-daemon CONFIG`, a whole config as
// JSON. Tells events and answers, a line each.
//
//   SIGUSR2   breaks its queue pairs
//   SIGHUP    tells its status and its connections
//   SIGTERM   ends it

import { subscribe } from 'node:diagnostics_channel';
import { readFileSync } from 'node:fs';
import type { Config } from '../../../src/config/index.ts';
import { dropPrivileges, ProxyDaemon } from '../../../src/proxy/index.ts';

const [path = ''] = process.argv.slice(2);
const config = JSON.parse(readFileSync(path, 'utf8')) as Config;
const tell = (event: string, data: unknown): void => {
  process.stdout.write(`${JSON.stringify({ event, data })}\n`);
};
for (const kind of ['link', 'peer', 'error']) subscribe(`millrace:${kind}`, (data) => tell(kind, data));

process.env.MILLRACE_ALLOW_BREAK = '1';
const daemon = await ProxyDaemon.start({ config });
// As `millrace up` does: links over RDMA devices are made with what is left.
dropPrivileges();
process.on('SIGUSR2', () => {
  for (const { name } of config.peers) void daemon.source.breakLinks?.(name);
});
process.on('SIGHUP', () => {
  void daemon.source.status().then((status) => tell('status', status));
  void daemon.source.connections().then((connections) => tell('connections', connections));
});
process.once('SIGTERM', () => {
  void daemon.close().then(() => process.exit());
});
tell('ready', process.pid);
await daemon.failed;
