import assert from 'node:assert/strict';
import { once } from 'node:events';
import { chmodSync, copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { findDirectSocket } from './daemon-socket.ts';
import { directEnvironment } from './library.ts';
import { whyNotLoaded } from './program-kind.ts';

describe('the environment of a program that is run', () => {
  test('the library comes first, other preloaded libraries stay, and it is not named twice', () => {
    const of = (preload?: string): string | undefined =>
      directEnvironment(preload === undefined ? {} : { LD_PRELOAD: preload }, '/lib/direct.so', '/run/s').LD_PRELOAD;
    assert.equal(of(), '/lib/direct.so');
    assert.equal(of('/lib/other.so'), '/lib/direct.so:/lib/other.so');
    assert.equal(of(' a.so:b.so /lib/direct.so'), '/lib/direct.so:a.so:b.so');
  });

  test('it says where the daemon is', () => {
    assert.equal(directEnvironment({}, '/lib/direct.so', '/run/s').MILLRACE_DIRECT_SOCKET, '/run/s');
  });
});

describe('the socket of the daemon', () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-sockets-'));
  after(() => rmSync(folder, { recursive: true }));
  const env = { MILLRACE_RUN_DIR: folder };
  const daemon = async (name: string): Promise<void> => {
    const server = createServer().listen(join(folder, name));
    after(() => server.close());
    await once(server, 'listening');
  };

  test('of an instance that cannot be is refused', () => {
    assert.throws(() => findDirectSocket('../x', env), {
      code: 'MILLRACE_ERR_USAGE',
      message: /invalid instance name/,
    });
  });

  test('is that of the instance that is named, before the one in the environment', () => {
    const both = { ...env, MILLRACE_DIRECT_SOCKET: '/mounted' };
    assert.equal(findDirectSocket('a', both), join(folder, 'a.direct'));
    assert.equal(findDirectSocket(undefined, both), '/mounted');
  });

  test('is that of the usual name while there is none, the only one, or the usual one of several', async () => {
    assert.equal(findDirectSocket(undefined, { MILLRACE_RUN_DIR: '/no/such' }), '/no/such/millrace.direct');
    await daemon('other.sock');
    assert.equal(findDirectSocket(undefined, env), join(folder, 'millrace.direct'));
    await daemon('other.direct');
    assert.equal(findDirectSocket(undefined, env), join(folder, 'other.direct'));
    await daemon('third.direct');
    assert.throws(() => findDirectSocket(undefined, env), { message: /several daemons run here: .*--instance/ });
    await daemon('millrace.direct');
    assert.equal(findDirectSocket(undefined, env), join(folder, 'millrace.direct'));
  });
});

describe('whether a program loads the library', () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-launch-'));
  after(() => rmSync(folder, { recursive: true }));
  const file = (name: string, content: string | Buffer): string => {
    const path = join(folder, name);
    writeFileSync(path, content);
    return path;
  };

  test('what is no program, or cannot be read, is left to the kernel', () => {
    for (const content of ['', '#!', '\x7fELF', '\x7fELF'.padEnd(50, '\0'), 'text']) {
      assert.equal(whyNotLoaded(file('x', content)), undefined, JSON.stringify(content));
    }
    assert.equal(whyNotLoaded(join(folder, 'none')), undefined);
    assert.equal(whyNotLoaded(folder), undefined);
  });

  test('a script is its interpreter, and scripts that interpret each other end', () => {
    assert.equal(whyNotLoaded(file('script', '#! /bin/sh -e\n')), undefined);
    assert.match(whyNotLoaded(file('static', '#!/bin/busybox sh\n')) ?? '', /^\/bin\/busybox is linked statically$/);
    assert.equal(whyNotLoaded(file('loop', `#!${join(folder, 'loop')}\n`)), undefined);
  });

  test('a dynamic program does, a static, a foreign and a set-user-ID one do not', () => {
    assert.equal(whyNotLoaded(process.execPath), undefined);
    assert.match(whyNotLoaded('/bin/busybox') ?? '', /linked statically/);
    const arm = Buffer.alloc(64);
    arm.write('\x7fELF\x02\x01\x01', 'latin1');
    arm.writeUInt16LE(183, 18);
    assert.match(whyNotLoaded(file('arm', arm)) ?? '', /is not a 64-bit x86 program/);
    const su = join(folder, 'su');
    copyFileSync('/bin/true', su);
    chmodSync(su, 0o4755);
    assert.match(whyNotLoaded(su) ?? '', /set-user-ID/);
  });
});
