// Tests of which kernel is chosen.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chooseKernel } from './kernel-package.ts';

test('where there is no kernel of a known series, none is chosen', () => {
  assert.equal(chooseKernel([]), null);
  assert.equal(chooseKernel(['linux-image-amd64', 'linux-image-6.12-amd64', 'linux-image-5.10.0-9-amd64']), null);
});

test('flavours that lack rxe and 9p, and packages without signed images, are passed over', () => {
  const names = [
    'linux-image-6.12.9+deb12-cloud-amd64',
    'linux-image-6.12.9+deb12-rt-amd64',
    'linux-image-6.12.9-amd64-unsigned',
  ];
  assert.equal(chooseKernel(names), null);
});

test('the newest of the preferred series is chosen, by number and not by letter', () => {
  const names = ['linux-image-6.12.9+deb12-amd64', 'linux-image-6.12.115+deb12-amd64', 'linux-image-6.1.0-54-amd64'];
  assert.equal(chooseKernel(names), 'linux-image-6.12.115+deb12-amd64');
  assert.equal(chooseKernel(['linux-image-6.1.0-9-amd64', 'linux-image-6.1.0-10-amd64']), 'linux-image-6.1.0-10-amd64');
});
