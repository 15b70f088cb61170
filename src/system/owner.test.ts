// Tests of telling the living from the dead.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import {
  currentOwner,
  livenessOf,
  type Owner,
  type OwnerView,
  ownerToken,
  parseOwner,
  parseOwnerToken,
  parseProcessStat,
  thisMachine,
} from './owner.ts';

const owner: Owner = {
  pid: 4711,
  startTicks: 123_456,
  bootId: '5b1f4d86-fff6-4c22-9810-0bbceba0fbb7',
  namespaces: '4026531836-4026531834',
};

function statText({ state = 'S', threads = 11, startTicks = owner.startTicks, comm = 'node' } = {}): string {
  return `4711 (${comm}) ${state} 1 4711 4711 0 -1 4194304 1 0 0 0 5 3 0 0 20 0 ${threads} 0 ${startTicks} 1000000 500 18446744073709551615\n`;
}

function view(stat: string | null, change: Partial<OwnerView> = {}): OwnerView {
  return { bootId: owner.bootId, namespaces: owner.namespaces, statOf: () => stat, ...change };
}

test('a stat line that makes no sense is not understood', () => {
  for (const text of ['', '4711', '4711 (node', '4711 (node) S 1 2 3', 'x'.repeat(10_000)]) {
    assert.equal(parseProcessStat(text), null, text.slice(0, 20));
  }
});

test('a command name with spaces and parentheses does not shift the fields', () => {
  const stat = parseProcessStat(statText({ comm: 'a) R 1 2 (b) c' }));
  assert.deepEqual(stat, { state: 'S', threads: 11, startTicks: 123_456 });
});

test('owners read from a file are checked', () => {
  const hostile: readonly unknown[] = [
    null,
    'me',
    [],
    {},
    { ...owner, pid: 0 },
    { ...owner, pid: -1 },
    { ...owner, pid: '1' },
    { ...owner, pid: 1.5 },
    { ...owner, startTicks: -1 },
    { ...owner, startTicks: 1e300 },
    { ...owner, bootId: '../../etc' },
    { ...owner, namespaces: 'x' },
  ];
  for (const value of hostile) assert.equal(parseOwner(value), null, JSON.stringify(value));
  assert.deepEqual(parseOwner({ ...owner, more: 1 }), owner);
});

test('an owner survives the way into a file name and back', () => {
  assert.deepEqual(parseOwnerToken(ownerToken(owner)), owner);
  for (const token of ['', 'x', '1_2', `${ownerToken(owner)}_1`]) assert.equal(parseOwnerToken(token), null, token);
});

test('the same pid and start time is alive', () => {
  assert.equal(livenessOf(owner, view(statText())), 'alive');
});

test('no such pid is dead', () => {
  assert.equal(livenessOf(owner, view(null)), 'dead');
});

test('a pid that was reused is dead', () => {
  assert.equal(livenessOf(owner, view(statText({ startTicks: 123_457 }))), 'dead');
});

test('a zombie is dead once its last thread has ended', () => {
  assert.equal(livenessOf(owner, view(statText({ state: 'Z', threads: 2 }))), 'alive');
  assert.equal(livenessOf(owner, view(statText({ state: 'Z', threads: 1 }))), 'dead');
});

test('another boot is dead, whatever runs under the pid now', () => {
  assert.equal(livenessOf(owner, view(statText(), { bootId: '00000000-0000-0000-0000-000000000000' })), 'dead');
});

test('another pid namespace is unknown, whether the pid exists here or not', () => {
  assert.equal(livenessOf(owner, view(statText(), { namespaces: '1-2' })), 'unknown');
  assert.equal(livenessOf(owner, view(null, { namespaces: '1-2' })), 'unknown');
});

test('a process that cannot be looked at is unknown', () => {
  const deny = (): never => {
    throw Object.assign(new Error('EACCES'), { code: 'EACCES' });
  };
  assert.equal(livenessOf(owner, view(null, { statOf: deny })), 'unknown');
  assert.equal(livenessOf(owner, view('garbage')), 'unknown');
});

test('this process is alive, and a child that ended is dead', async () => {
  assert.equal(livenessOf(currentOwner()), 'alive');
  const child = spawn('cat');
  const machine = thisMachine();
  const startTicks = parseProcessStat(machine.statOf(child.pid ?? 0) ?? '')?.startTicks ?? -1;
  const childOwner: Owner = { ...currentOwner(), pid: child.pid ?? 0, startTicks };
  assert.equal(livenessOf(childOwner), 'alive');
  child.kill('SIGKILL');
  await once(child, 'exit');
  assert.equal(livenessOf(childOwner), 'dead');
});
