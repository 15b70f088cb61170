// Compares direct/calls.def with what the C libraries here declare and export.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';

const root = join(import.meta.dirname, '..');
const glibcFile = '/lib/x86_64-linux-gnu/libc.so.6';
const muslFile = '/usr/lib/x86_64-linux-musl/libc.so';

const lines = readFileSync(join(root, 'direct/calls.def'), 'utf8').split('\n');
const rowPattern = /^MR_CALL\((\w+), (\w+), "([^"]+)"\)$/;
const rows = lines.filter((line) => line !== '' && !line.startsWith('//')).map((line) => rowPattern.exec(line) ?? []);
const kinds = new Map(rows.map(([, name = '', kind = '']) => [name, kind]));

const headers = `
  aio.h arpa/inet.h dirent.h execinfo.h fcntl.h mqueue.h netinet/in.h poll.h pty.h
  sched.h spawn.h stdio.h stdlib.h termios.h unistd.h utmp.h wordexp.h sys/epoll.h
  sys/eventfd.h sys/fanotify.h sys/file.h sys/inotify.h sys/ioctl.h sys/mman.h sys/pidfd.h
  sys/select.h sys/sendfile.h sys/signalfd.h sys/socket.h sys/stat.h sys/statfs.h
  sys/statvfs.h sys/time.h sys/timerfd.h sys/uio.h sys/xattr.h sgtty.h
`
  .trim()
  .split(/\s+/);

/**
 * They name a file by a folder's descriptor; what else they allow says nothing of the connection.
 */
const foldersOnly = new Set(
  `
  faccessat fchmodat fchownat fstatat fstatat64 futimesat linkat mkdirat mkfifoat
  mknodat name_to_handle_at open_by_handle_at openat openat64 __openat_2 __openat64_2
  readlinkat __readlinkat_chk renameat renameat2 scandirat scandirat64 statx symlinkat
  unlinkat utimensat
`
    .trim()
    .split(/\s+/),
);

function output(command: string, args: readonly string[], input = ''): string {
  const { status, stdout, stderr } = spawnSync(command, args, { input, encoding: 'utf8', maxBuffer: 1 << 26 });
  assert.equal(status, 0, stderr);
  return stdout;
}

/** Functions that a program can be linked with today, by address. */
function exportsOf(file: string): Map<string, string[]> {
  const byAddress = new Map<string, string[]>();
  for (const line of output('nm', ['--dynamic', '--defined-only', file]).split('\n')) {
    const [, address = '', name = ''] = /^(\w+) [TWi] (\w+)(?:@@(?!GLIBC_PRIVATE)\S+)?$/.exec(line) ?? [];
    if (name !== '') byAddress.set(address, [...(byAddress.get(address) ?? []), name]);
  }
  return byAddress;
}

/** Names of declared functions with a parameter that glibc's headers name as a descriptor. */
function declaredWithDescriptor(): Set<string> {
  const includes = headers.map((header) => `#include <${header}>\n`).join('');
  const options = ['-std=gnu17', '-D_GNU_SOURCE', '-O2', '-D_FORTIFY_SOURCE=2', '-E', '-P', '-xc', '-'];
  const text = output('gcc', options, includes).replaceAll(/\s+/g, ' ');
  const names = new Set<string>();
  const descriptor = /\b(?:int|mqd_t) __(?:\w*fd\d*|fd\w*|fildes|mqdes|sockfd|s|sd|epfd|file)$/;
  for (const [, name = '', parameters = ''] of text.matchAll(/\b(\w+) ?\(([^()]*)\)/g)) {
    if (parameters.split(',').some((each) => descriptor.test(each.trim()))) names.add(name);
  }
  return names;
}

const glibc = exportsOf(glibcFile);
const musl = exportsOf(muslFile);
const exported = new Set([...glibc.values(), ...musl.values()].flat());

describe('the list of calls of direct', () => {
  test('every line is a row of one of three kinds, and no name is there twice', () => {
    assert.equal(kinds.size, rows.length);
    assert.ok(kinds.size > 100);
    for (const kind of kinds.values()) assert.match(kind, /^(?:EMULATED|DEMOTES|PASSES)$/);
  });

  test('every name is exported by a C library', () => {
    const unknown = [...kinds.keys()].filter((name) => !exported.has(name));
    assert.deepEqual(unknown, []);
  });

  test('every function that the headers declare with a descriptor is listed', () => {
    const declared = [...declaredWithDescriptor()].filter((name) => exported.has(name));
    assert.ok(declared.length > 100);
    const missing = declared.filter((name) => !kinds.has(name) && !foldersOnly.has(name));
    assert.deepEqual(missing, []);
  });

  test('every other name of a listed function is listed with the same kind', () => {
    for (const byAddress of [glibc, musl]) {
      for (const names of byAddress.values()) {
        if (!names.some((name) => kinds.has(name))) continue;
        assert.equal(new Set(names.map((name) => kinds.get(name))).size, 1, names.join(' '));
      }
    }
  });

  test('every checked, 64-bit or underscored variant of a listed function is listed', () => {
    const variants = (name: string) => [
      `__${name}`,
      `__${name}_chk`,
      `${name}64`,
      `__libc_${name}`,
      `_${name}`,
      `_IO_${name}`,
    ];
    const missing = [...kinds.keys()].flatMap(variants).filter((name) => exported.has(name) && !kinds.has(name));
    assert.deepEqual(missing, []);
  });
});
