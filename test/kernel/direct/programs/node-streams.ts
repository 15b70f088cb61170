// Node's streams over net and tls: a file piped there and back by several connections at once,
// digested at both ends.

import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { RunningProgram } from '../../../../workbench/worlds/running-program.ts';
import { temporaryFolder } from '../../../../workbench/worlds/temporary-folder.ts';
import type { World } from '../../../../workbench/worlds/world.ts';

const peer = join(import.meta.dirname, 'node-streams-peer.ts');
const fileBytes = 6_000_000;
/** Of one address: two by net, two by each of two versions of TLS, and one of a web stream. */
const connections = 7;

/** The same in every run. */
const content = Buffer.alloc(fileBytes, randomBytes(499_979));

export async function tryNodeStreams(world: World): Promise<unknown> {
  using folder = temporaryFolder('node-streams');
  const [key, certificate, file] = ['key.pem', 'certificate.pem', 'file'].map((name) => join(folder.path, name)) as [
    string,
    string,
    string,
  ];
  writeFileSync(file, content);
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  const request = ['req', '-x509', ...curve, '-subj', '/CN=b', '-keyout', key, '-out', certificate];
  await world.call('openssl', request);
  await using server = RunningProgram.start(world.b, process.execPath, [peer, 'server', key, certificate]);
  await server.line(/^ready$/);
  await world.listeningAll([8090, 8091]);
  const results = [];
  for (const address of [world.b.ipv4, world.b.ipv6]) {
    const client = JSON.parse(await world.call(process.execPath, [peer, 'client', address, file])) as unknown;
    const told: string[] = [];
    while (told.length < connections) told.push(await server.line(/^\d+ /));
    results.push({ client, server: told.sort() });
  }
  return { results, said: server.stderr };
}
