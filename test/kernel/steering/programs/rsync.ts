// rsync to a daemon: a tree pushed, changed, pushed again and pulled back; compared by every file's
// contents and mode.

import { createHash } from 'node:crypto';
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { RunningProgram } from '../../../../workbench/worlds/running-program.ts';
import { temporaryFolder } from '../../../../workbench/worlds/temporary-folder.ts';
import type { World } from '../../../../workbench/worlds/world.ts';

const port = 8873;
const folders = 12;
const filesPerFolder = 25;

/**
 * Sizes from nothing to 250 kB, contents that do not compress to nothing and are the same in every
 * run.
 */
function content(number: number): Buffer {
  const blocks = Array.from({ length: (number * 37) % 61 }, (_, block) =>
    createHash('sha512').update(`${number} ${block}`).digest(),
  );
  return Buffer.concat(Array.from({ length: 64 }, () => Buffer.concat(blocks)));
}

function plant(tree: string): void {
  for (let folder = 0; folder < folders; folder++) {
    const path = join(tree, `folder ${folder}`, 'déjà');
    mkdirSync(path, { recursive: true });
    for (let file = 0; file < filesPerFolder; file++) {
      const name = join(path, `file-${file}`);
      writeFileSync(name, content(folder * filesPerFolder + file));
      chmodSync(name, file % 2 === 0 ? 0o644 : 0o750);
    }
    symlinkSync('file-1', join(path, 'link'));
  }
}

function describe(tree: string): string {
  const hash = createHash('sha256');
  for (const name of readdirSync(tree, { recursive: true, encoding: 'utf8' }).sort()) {
    const path = join(tree, name);
    const status = lstatSync(path);
    hash.update(`${name} ${status.mode}\n`);
    if (status.isSymbolicLink()) hash.update(readlinkSync(path));
    if (status.isFile()) hash.update(readFileSync(path));
  }
  return hash.digest('hex');
}

export async function tryRsync(world: World): Promise<unknown> {
  using folder = temporaryFolder('rsync');
  const [source, served, back] = ['source', 'served', 'back'].map((name) => join(folder.path, name)) as [
    string,
    string,
    string,
  ];
  mkdirSync(served);
  plant(source);
  const file = join(folder.path, 'rsyncd.conf');
  writeFileSync(file, `use chroot = no\nuid = root\ngid = root\n[tree]\npath = ${served}\nread only = no\n`);
  await using _server = RunningProgram.start(world.b, 'rsync', [
    '--daemon',
    '--no-detach',
    `--config=${file}`,
    `--port=${port}`,
  ]);
  await world.listening(port);
  const address = (host: string): string => `rsync://${host}:${port}/tree/`;
  const rsync = (...args: string[]): Promise<string> =>
    world.call('rsync', ['--archive', '--omit-dir-times', '--delete', ...args]);
  await rsync(`${source}/`, address(world.b.ipv4));
  const pushed = describe(served);
  rmSync(join(source, 'folder 3'), { recursive: true });
  writeFileSync(join(source, 'folder 4', 'déjà', 'file-7'), Buffer.concat([content(9), content(8), content(7)]));
  const itemized = await rsync('--checksum', '--itemize-changes', `${source}/`, address(`[${world.b.ipv6}]`));
  // Whether the second of a file's time has changed, too, is a matter of luck.
  const changes = itemized.replace(/^(<f..)t/gm, '$1.');
  await rsync('--whole-file', address(world.b.ipv4), `${back}/`);
  return { pushed, changes, changed: describe(served), isSame: describe(source) === describe(back) };
}
