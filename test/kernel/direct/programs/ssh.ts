// rsync by ssh, as people use it, and a large stream there and back: a tree pushed and pulled,
// compared by every file's contents.

import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { RunningProgram } from '../../../../workbench/worlds/running-program.ts';
import { succeed } from '../../../../workbench/worlds/succeed.ts';
import { temporaryFolder } from '../../../../workbench/worlds/temporary-folder.ts';
import type { World } from '../../../../workbench/worlds/world.ts';

/** By how its server is started. */
const ports = { inOneProcess: 2222, byExec: 2223 } as const;
const sshd = '/usr/sbin/sshd';
const files = 60;

function content(number: number): Buffer {
  const block = createHash('sha512').update(String(number)).digest();
  return Buffer.alloc((number * 7919) % 200_003, block);
}

function describe(tree: string): string {
  const hash = createHash('sha256');
  for (const name of readdirSync(tree, { recursive: true, encoding: 'utf8' }).sort()) {
    const path = join(tree, name);
    hash.update(`${name}\n`);
    if (statSync(path).isFile()) hash.update(readFileSync(path));
  }
  return hash.digest('hex');
}

function serverConfiguration(at: (name: string) => string): string {
  return `HostKey ${at('host-key')}
AuthorizedKeysFile ${at('client-key.pub')}
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
UseDNS no
`;
}

function clientConfiguration(at: (name: string) => string): string {
  return `Host *
  Port ${ports.inOneProcess}
  User root
  IdentityFile ${at('client-key')}
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
`;
}

export async function trySsh(world: World): Promise<unknown> {
  using folder = temporaryFolder('ssh');
  const at = (name: string): string => join(folder.path, name);
  for (const key of ['host-key', 'client-key']) {
    await succeed(world.lab.host('a'), 'ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', at(key)]);
  }
  writeFileSync(at('sshd_config'), serverConfiguration(at));
  writeFileSync(at('ssh_config'), clientConfiguration(at));
  mkdirSync(at('source/inner'), { recursive: true });
  for (let number = 0; number < files; number++) {
    writeFileSync(at(`source/${number % 2 === 0 ? 'inner/' : ''}file-${number}`), content(number));
  }
  // Where it separates privileges: packages leave it to the service to make that folder.
  mkdirSync('/run/sshd', { recursive: true, mode: 0o755 });
  // Usually it runs a new program for each connection, which inherits the socket: that stays TCP.
  const words = ['-D', '-e', '-f', at('sshd_config')];
  await using server = RunningProgram.start(world.b, sshd, [...words, '-r', '-p', String(ports.inOneProcess)]);
  await using usual = RunningProgram.start(world.b, sshd, [...words, '-p', String(ports.byExec)]);
  await world.listeningAll(Object.values(ports));
  const ssh = ['-F', at('ssh_config')];
  const rsync = (...args: string[]): Promise<string> =>
    world.call('rsync', ['--archive', '--checksum', '--itemize-changes', '-e', `ssh ${ssh.join(' ')}`, ...args]);
  await rsync(`${at('source')}/`, `${world.b.ipv4}:${at('there')}/`);
  writeFileSync(at('source/file-1'), content(777));
  const changes = await rsync(`${at('source')}/`, `[${world.b.ipv6}]:${at('there')}/`);
  await rsync(`${world.b.ipv4}:${at('there')}/`, `${at('back')}/`);
  const lines = Array.from({ length: 200_000 }, (_, number) => `line ${number} of many\n`).join('');
  const echoed = [];
  for (const port of Object.values(ports)) {
    echoed.push(await world.call('ssh', [...ssh, '-p', String(port), world.b.ipv4, 'cat'], lines));
  }
  return {
    changes: changes.replace(/^(<f..)t/gm, '$1.'),
    trees: ['source', 'there', 'back'].map((name) => describe(at(name))),
    isEchoed: echoed.map((text) => text === lines),
    failed: `${server.stderr}${usual.stderr}`.split('\n').filter((line) => /error|fatal|corrupt/i.test(line)),
  };
}
