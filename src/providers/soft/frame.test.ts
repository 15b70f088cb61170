import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import {
  beginFrame,
  frameFlags,
  frameProblem,
  frameType,
  frameTypes,
  HEADER_WORDS,
  hasFlag,
  headerRow,
  MAX_MESSAGE_BYTES,
} from './frame.ts';
import { addSequence, sequenceDistance } from './sequence.ts';

function frame(type: number, flags = 0, sequence = 0, bytes = 0): Uint32Array {
  const words = new Uint32Array(HEADER_WORDS);
  beginFrame(words, type, flags, sequence, bytes);
  if (type === frameTypes.nak) words[headerRow.imm] = 1;
  return words;
}

describe('frames', () => {
  test('a header that is a protocol error is refused, with the reason', () => {
    const change = (words: Uint32Array, at: number, value: number): Uint32Array => words.with(at, value);
    const send = frame(frameTypes.send);
    assert.match(frameProblem(change(send, headerRow.magic, 1)) ?? '', /magic/);
    assert.match(frameProblem(frame(0)) ?? '', /unknown type 0/);
    assert.match(frameProblem(frame(11)) ?? '', /unknown type 11/);
    assert.match(frameProblem(frame(frameTypes.ack, frameFlags.hasImm)) ?? '', /flags/);
    assert.match(frameProblem(frame(frameTypes.send, 0, 0x100_0000)) ?? '', /24 bits/);
    assert.match(frameProblem(frame(frameTypes.send, 0, 0, MAX_MESSAGE_BYTES + 1)) ?? '', /payload/);
    assert.match(frameProblem(frame(frameTypes.read, 0, 0, 1)) ?? '', /payload/);
    assert.match(frameProblem(change(frame(frameTypes.read), headerRow.operandA, MAX_MESSAGE_BYTES + 1)) ?? '', /read/);
    assert.match(frameProblem(change(frame(frameTypes.nak), headerRow.imm, 6)) ?? '', /nak/);
    assert.match(frameProblem(change(send, headerRow.remoteAddress + 1, 0x20_0000)) ?? '', /53 bits/);
  });

  test('every kind of frame that is sent is accepted', () => {
    for (const type of Object.values(frameTypes)) assert.equal(frameProblem(frame(type)), undefined);
    const words = frame(frameTypes.write, frameFlags.hasImm | frameFlags.solicited, 77, MAX_MESSAGE_BYTES);
    assert.equal(frameProblem(words), undefined);
    assert.equal(frameType(words), frameTypes.write);
    assert.ok(hasFlag(words, frameFlags.hasImm) && hasFlag(words, frameFlags.solicited));
  });

  test('sequence numbers are compared across their wrap', () => {
    fc.assert(
      fc.property(fc.nat(0xff_ffff), fc.integer({ min: -(2 ** 23), max: 2 ** 23 - 1 }), (start, step) => {
        assert.equal(sequenceDistance(addSequence(start, step), start), step);
      }),
    );
  });
});
