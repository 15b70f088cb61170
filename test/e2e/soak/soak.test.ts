// Tests of the soak: it finds nothing wrong.
// Runs alone: its daemons must not be taken for dead because something else has the processors.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { faultKinds, quickFaultKinds } from '../../../workbench/soak/plan.ts';
import { behaviours } from '../../../workbench/soak/script.ts';
import type { SoakReport } from '../../../workbench/soak/soak.ts';
import { Place } from './place.ts';

describe('the soak', () => {
  test('a wrong option is one clear line', async () => {
    using place = new Place();
    const child = place.start(['--seconds', 'long']);
    const [stderr, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
    assert.equal(code, 2);
    assert.match(stderr, /expected a whole number from 1 to 86400/);
  });

  test('every kind of fault: every byte of 200 connections is right, and nothing is left', async () => {
    using place = new Place();
    const child = place.start(['--seconds', '12', '--seed', '1', '--json']);
    const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
    assert.notEqual(stdout, '', stderr);
    const { phases } = JSON.parse(stdout) as SoakReport;
    assert.deepEqual(
      phases.flatMap(({ wire, failures }) => failures.map((failure) => `${wire}: ${failure}`)),
      [],
      stderr,
    );
    assert.equal(code, 0, stderr);
    assert.deepEqual(
      phases.map(({ wire }) => wire),
      ['shm', 'roce', 'tcp'],
    );
    const kinds = new Set(phases.flatMap(({ faults }) => faults.map(({ kind }) => kind)));
    assert.deepEqual(kinds, new Set([...faultKinds, 'packet loss']));
    for (const { wire, traffic } of phases) {
      for (const behaviour of behaviours) assert.ok(traffic[behaviour].exact > 0, `${behaviour} on ${wire}`);
    }
    assert.deepEqual(place.left(), []);
  });

  test('direct connections: whatever daemons and programs suffer, none breaks, and nothing is left', async () => {
    using place = new Place();
    const child = place.start([
      '--direct',
      '--wire',
      'tcp',
      '--connections',
      '60',
      '--seconds',
      '1',
      '--seed',
      '1',
      '--json',
    ]);
    const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
    assert.notEqual(stdout, '', stderr);
    const { phases } = JSON.parse(stdout) as SoakReport;
    assert.deepEqual(
      phases.flatMap(({ failures }) => failures),
      [],
      stderr,
    );
    assert.equal(code, 0, stderr);
    const kinds = new Set(phases.flatMap(({ faults }) => faults.map(({ kind }) => kind)));
    assert.deepEqual(kinds, new Set(quickFaultKinds));
    assert.deepEqual(place.left(), []);
  });
});
