import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { receiveRow, sendFlags, sendOpcodes, sendRow, sgeRow } from '../../../verbs/index.ts';
import {
  checkPostedCount,
  checkUnreadCount,
  copyCheckedReceive,
  copyCheckedSend,
  type SendLimits,
} from './request-check.ts';

const OWN_LKEY = 7;
const FOREIGN_LKEY = 8;
const OWN_HANDLE = 3;
const keys = { lkeys: new Set([OWN_LKEY]), addressHandles: new Set([OWN_HANDLE]) };
const limits: SendLimits = {
  qpType: 'RC',
  maxSge: 2,
  keys,
  inline: undefined,
  inlineStride: 0,
  maxInlineBytes: 0,
};

/** A row of a ring with these entries, as a guest writes it; each field is by its word. */
function sendOf(fields: Readonly<Record<number, number>>, lkeys: readonly number[]): Uint32Array {
  const ring = new Uint32Array(sendRow.sge + 8 * sgeRow.words);
  ring[sendRow.opcode] = sendOpcodes.send;
  ring[sendRow.sgeCount] = lkeys.length;
  for (const [word, value] of Object.entries(fields)) ring[Number(word)] = value;
  for (const [index, lkey] of lkeys.entries()) ring[sendRow.sge + index * sgeRow.words + sgeRow.lkey] = lkey;
  return ring;
}

function checked(ring: Uint32Array, over: Partial<SendLimits> = {}): Uint32Array {
  const words = new Uint32Array(ring.length);
  copyCheckedSend(ring, 0, words, 0, 0, { ...limits, ...over });
  return words;
}

const lkeyAt = (words: Uint32Array, sge: number, first: number = sendRow.sge): number =>
  words[first + sge * sgeRow.words + sgeRow.lkey];

describe('the requests of a guest', () => {
  test('keep the lkeys of its own regions; any other key becomes 0, which every device refuses', () => {
    const words = checked(sendOf({}, [OWN_LKEY, FOREIGN_LKEY]));
    assert.equal(lkeyAt(words, 0), OWN_LKEY);
    assert.equal(lkeyAt(words, 1), 0);
    const ring = new Uint32Array(receiveRow.sge + 2 * sgeRow.words);
    ring[receiveRow.sgeCount] = 2;
    ring[receiveRow.sge + sgeRow.lkey] = FOREIGN_LKEY;
    ring[receiveRow.sge + sgeRow.words + sgeRow.lkey] = OWN_LKEY;
    const receive = new Uint32Array(ring.length);
    copyCheckedReceive(ring, 0, receive, 0, 2, keys);
    assert.equal(lkeyAt(receive, 0, receiveRow.sge), 0);
    assert.equal(lkeyAt(receive, 1, receiveRow.sge), OWN_LKEY);
  });

  test('with too many entries or an unknown opcode become one that fails', () => {
    for (const ring of [
      sendOf({}, [OWN_LKEY, OWN_LKEY, OWN_LKEY]),
      sendOf({ [sendRow.opcode]: sendOpcodes.compareSwap + 1 }, [OWN_LKEY]),
    ]) {
      const words = checked(ring);
      assert.equal(words[sendRow.opcode], sendOpcodes.send);
      assert.equal(words[sendRow.sgeCount], 1);
      assert.equal(lkeyAt(words, 0), 0);
    }
  });

  test('with inline bytes that the ring does not have become one that fails', () => {
    const words = checked(sendOf({ [sendRow.flags]: sendFlags.inline }, [OWN_LKEY]));
    assert.equal(words[sendRow.flags] & sendFlags.inline, 0);
    assert.equal(lkeyAt(words, 0), 0);
  });

  test('of a UD queue pair name only address handles of the guest', () => {
    const handleOf = (handle: number): number =>
      checked(sendOf({ [sendRow.addressHandle]: handle }, []), { qpType: 'UD' })[sendRow.addressHandle];
    assert.equal(handleOf(OWN_HANDLE), OWN_HANDLE);
    assert.equal(handleOf(OWN_HANDLE + 1), 0);
  });

  test('are counted: more than there was room for is a protocol error', () => {
    checkPostedCount(4, 4);
    checkUnreadCount(4, 4);
    assert.throws(() => checkPostedCount(5, 4), { code: 'MILLRACE_ERR_PROTOCOL' });
    assert.throws(() => checkUnreadCount(5, 4), { code: 'MILLRACE_ERR_PROTOCOL' });
  });
});
