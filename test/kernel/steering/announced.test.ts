// Tests that a kernel's table of announcements that peers have filled up says so, and goes on.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { Announcements } from '../../../src/proxy/announcements.ts';
import { type IpEndpoint, parseRules, Steering } from '../../../src/steering/index.ts';
import { World } from '../../../workbench/worlds/world.ts';

/** As in bpf/connect.bpf.c. */
const PLACES = 262_144;
/** What is left of it for those that are looked at. */
const LEFT = 2000;
const PEERS = 3;
const OF_PEER = 1000;

const endpointOf = (peer: number, index: number): IpEndpoint => {
  // Words as the kernel has them, of an IPv4 address that is mapped.
  const address = [0, 0, 0xffff_0000, (10 | (peer << 8) | (index << 16)) >>> 0];
  return { address, port: 80 };
};

test('peers that announce more than fits share the table', async () => {
  await using world = await World.create();
  const instance = `full-${randomBytes(4).toString('hex')}`;
  using steering = Steering.create({ instance, cgroup: world.a.cgroup, rules: parseRules('connect to any') });
  for (let index = 0; index < PLACES - LEFT; index++) {
    assert.ok(steering.announce({ ...endpointOf(100, index & 0xffff), port: 1 + (index >>> 16) }));
  }
  const heard: boolean[] = [];
  const announcements = new Announcements(steering, (isFull) => heard.push(isFull));
  for (let peer = 1; peer <= PEERS; peer++) {
    for (let index = 0; index < OF_PEER; index++) announcements.add(endpointOf(peer, index), peer);
  }
  assert.equal(announcements.leftOut, PEERS * OF_PEER - LEFT);
  assert.deepEqual(heard, [true]);
  for (let peer = 1; peer <= PEERS; peer++) {
    const all = Array.from({ length: OF_PEER }, (_, index) => endpointOf(peer, index));
    const told = all.filter((endpoint) => !announcements.isLeftOut(endpoint)).length;
    assert.ok(Math.abs(told - LEFT / PEERS) <= 1, `${told} of peer ${peer}`);
  }
  for (let index = 0; index < OF_PEER; index++) announcements.remove(endpointOf(3, index));
  assert.deepEqual([announcements.leftOut, heard], [0, [true, false]]);
});
