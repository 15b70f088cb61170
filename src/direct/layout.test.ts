// Compares the layout here with that of direct/layout.h, by a C program that prints its own.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import {
  arenaBytes,
  DIRECT_VERSION,
  DOORBELL_BYTES,
  decodeMessage,
  doorbellWords,
  encodeMessage,
  FLOW_BYTES,
  flowWords,
  lostWords,
  MESSAGE_BYTES,
  messageKinds,
  RINGS_OFFSET,
  ringsOffset,
  SLOT_BYTES,
  SLOTS,
  SLOTS_OFFSET,
  WITH_LANE,
  withdrawFlags,
} from './layout.ts';

const program = `
#include <stddef.h>
#include <stdio.h>
#include "layout.h"
#define SHOW(name, value) printf("\\"%s\\": %zu,\\n", name, (size_t)(value))
int main(void) {
  printf("{");
  SHOW("version", MR_DIRECT_VERSION);
  SHOW("hello", MR_HELLO);
  SHOW("offer", MR_OFFER);
  SHOW("withdraw", MR_WITHDRAW);
  SHOW("listens", MR_LISTENS);
  SHOW("welcome", MR_WELCOME);
  SHOW("arena", MR_ARENA);
  SHOW("promote", MR_PROMOTE);
  SHOW("decline", MR_DECLINE);
  SHOW("demote", MR_DEMOTE);
  SHOW("forget", MR_FORGET);
  SHOW("trim", MR_TRIM);
  SHOW("message bytes", sizeof(struct mr_message));
  SHOW("at kind", offsetof(struct mr_message, kind));
  SHOW("at connection", offsetof(struct mr_message, connection));
  SHOW("at arena", offsetof(struct mr_message, arena));
  SHOW("at slot", offsetof(struct mr_message, slot));
  SHOW("at party", offsetof(struct mr_message, party));
  SHOW("at value", offsetof(struct mr_message, value));
  SHOW("at news", offsetof(struct mr_desk, news));
  SHOW("slots", MR_SLOTS);
  SHOW("slots offset", offsetof(struct mr_arena, slot));
  SHOW("slot bytes", sizeof(struct mr_slot));
  SHOW("rings offset", MR_RINGS_OFFSET);
  SHOW("at flags", offsetof(struct mr_message, flags));
  SHOW("at token", offsetof(struct mr_message, token));
  SHOW("with lane", MR_WITH_LANE);
  SHOW("leaves rest", MR_LEAVES_REST);
  SHOW("was bulk", MR_WAS_BULK);
  SHOW("lost", MR_LOST);
  SHOW("lost as bulk", MR_LOST_BULK);
  SHOW("doorbell bytes", sizeof(struct mr_doorbell));
  SHOW("ready", offsetof(struct mr_doorbell, ready));
  SHOW("asleep", offsetof(struct mr_doorbell, asleep));
  SHOW("flow bytes", sizeof(struct mr_flow));
  SHOW("written", offsetof(struct mr_flow, written));
  SHOW("base", offsetof(struct mr_flow, base));
  SHOW("from", offsetof(struct mr_flow, from));
  SHOW("until", offsetof(struct mr_flow, until));
  SHOW("wantsRoom", offsetof(struct mr_flow, wants_room));
  SHOW("isShut", offsetof(struct mr_flow, is_shut));
  SHOW("wantsBack", offsetof(struct mr_flow, wants_back));
  SHOW("isLost", offsetof(struct mr_flow, is_lost));
  SHOW("read", offsetof(struct mr_flow, read));
  SHOW("looks", offsetof(struct mr_flow, looks));
  SHOW("isGone", offsetof(struct mr_flow, is_gone));
  printf("\\"end\\": 0}");
}
`;

test('the layout is that of direct/layout.h', () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-layout-'));
  try {
    const source = join(folder, 'show.c');
    writeFileSync(source, program);
    const include = join(import.meta.dirname, '../../direct');
    execFileSync('cc', ['-std=c17', '-Wall', '-Werror', `-I${include}`, source, '-o', join(folder, 'show')]);
    const { end, ...shown } = JSON.parse(execFileSync(join(folder, 'show'), { encoding: 'utf8' }));
    assert.equal(end, 0);
    assert.deepEqual(shown, {
      version: DIRECT_VERSION,
      ...messageKinds,
      'message bytes': MESSAGE_BYTES,
      'at kind': 0,
      'at connection': 4,
      'at arena': 8,
      'at slot': 12,
      'at party': 16,
      'at value': 20,
      'at news': 0,
      slots: SLOTS,
      'slots offset': SLOTS_OFFSET,
      'slot bytes': SLOT_BYTES,
      'rings offset': RINGS_OFFSET,
      'at flags': 24,
      'at token': 24,
      'with lane': WITH_LANE,
      'leaves rest': Number(withdrawFlags.leavesRest),
      'was bulk': Number(withdrawFlags.wasBulk),
      lost: lostWords.lost,
      'lost as bulk': lostWords.bulk,
      'doorbell bytes': DOORBELL_BYTES,
      ...doorbellWords,
      'flow bytes': FLOW_BYTES,
      ...flowWords,
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('a message is read as it was written, and only whole', () => {
  const message = {
    kind: 18,
    connection: 0xffff_ffff,
    arena: 2,
    slot: 63,
    party: 1,
    value: 4096,
    token: 0x8877_6655_4433_2211n,
  };
  const bytes = encodeMessage(message);
  assert.deepEqual(decodeMessage(bytes), message);
  assert.deepEqual(
    new Uint32Array(bytes.buffer),
    Uint32Array.of(18, 0xffff_ffff, 2, 63, 1, 4096, 0x4433_2211, 0x8877_6655),
  );
  for (const size of [0, 31, 33]) assert.equal(decodeMessage(new Uint8Array(size)), null);
});

test('the rings of all slots come one after the other, behind the words', () => {
  assert.equal(ringsOffset(0, 4096), RINGS_OFFSET);
  assert.equal(ringsOffset(1, 4096), RINGS_OFFSET + 8192);
  assert.equal(arenaBytes(4096), RINGS_OFFSET + 128 * 4096);
});
