// Tests of what a lab may look like.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { UsageError } from '../errors.ts';
import { addressesOf, hasSwitch, hostIndexOf, labSpec, namespacesOf, type SpecOptions } from './spec.ts';

const wrong: readonly (readonly [string, SpecOptions, RegExp])[] = [
  ['no hosts', { hosts: [] }, /0 hosts/],
  ['one host', { hosts: 1 }, /1 hosts/],
  ['201 hosts', { hosts: 201 }, /201 hosts; a lab has 2 to 200/],
  ['half a host', { hosts: 2.5 }, /2\.5 hosts/],
  ['a host called twice', { hosts: ['a', 'b', 'a'] }, /two hosts are called a/],
  ['an empty host name', { hosts: ['a', ''] }, /host name ""/],
  ['a path as host name', { hosts: ['a', '../x'] }, /host name "\.\.\/x"/],
  ['upper case', { hosts: ['a', 'B'] }, /host name "B"/],
  ['a name that is an option', { hosts: ['a', '-b'] }, /host name "-b"/],
  ['a line break in a name', { hosts: ['a', 'b\n'] }, /host name "b\\n"/],
  ['a name of 16 characters', { hosts: ['a', 'b'.repeat(16)] }, /1 to 15/],
  ['a lab name with a space', { name: 'my lab' }, /lab name "my lab"/],
  ['an mtu that IPv6 cannot use', { mtu: 1279 }, /mtu 1279/],
  ['an mtu beyond veth', { mtu: 65_536 }, /mtu 65536/],
  ['an mtu that is no number', { mtu: Number.NaN }, /mtu NaN/],
  ['a negative delay', { delayMs: -1 }, /delay -1 ms/],
  ['more than all packets lost', { lossPercent: 101 }, /loss 101 %/],
];

for (const [what, options, message] of wrong) {
  test(`${what} is refused`, () => {
    assert.throws(
      () => labSpec(options),
      (error) => error instanceof UsageError && message.test(error.message),
    );
  });
}

test('an unknown host is refused with a guess', () => {
  const spec = labSpec({ hosts: ['client', 'server'] });
  assert.throws(() => hostIndexOf(spec, 'sever'), /no host "sever" in this lab \(did you mean server\?\)/);
  assert.throws(() => hostIndexOf(spec, 'x'), /there is client, server/);
});

test('the default is two hosts on one cable, called a and b', () => {
  const spec = labSpec({});
  assert.deepEqual(spec, { name: null, hosts: ['a', 'b'], mtu: 1500, delayMs: 0, lossPercent: 0 });
  assert.equal(hasSwitch(spec), false);
  assert.deepEqual(namespacesOf('00c0ffee', spec), ['mr-00c0ffee-a', 'mr-00c0ffee-b']);
});

test('three hosts have a switch, which no host can be mistaken for', () => {
  const spec = labSpec({ hosts: ['a', 'b', 'switch'] });
  assert.deepEqual(namespacesOf('00c0ffee', spec), [
    'mr-00c0ffee-a',
    'mr-00c0ffee-b',
    'mr-00c0ffee-switch',
    'mr-00c0ffee_switch',
  ]);
});

test('the largest lab has names and addresses that differ', () => {
  const { hosts } = labSpec({ hosts: 200 });
  const addresses = hosts.flatMap((_, index) => Object.values(addressesOf(index)));
  assert.equal(new Set(hosts).size, 200);
  assert.equal(new Set(addresses).size, 400);
  assert.deepEqual(addressesOf(199), { ipv4: '10.77.0.200', ipv6: 'fd77::200' });
});
