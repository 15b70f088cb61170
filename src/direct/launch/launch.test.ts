import assert from 'node:assert/strict';
import { chmodSync, copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
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
