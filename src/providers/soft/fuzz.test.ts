// A million inputs for the decoders of the wires.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { FuzzedQp } from './fixtures/fuzzed-qp.ts';
import { generator, mutate, validFrame } from './fixtures/mutation.ts';
import {
  frameProblem,
  frameType,
  frameTypes,
  HEADER_BYTES,
  HEADER_WORDS,
  headerRow,
  MAX_MESSAGE_BYTES,
} from './frame.ts';
import { decodeHello, encodeHello, HELLO_BYTES } from './rendezvous.ts';
import { decodeMessage, encodeMessage, MESSAGE_BYTES } from './shm-message.ts';

// MILLRACE_FUZZ_SEED repeats a run.
const seed = Number(process.env.MILLRACE_FUZZ_SEED ?? Date.now() % 1_000_000_000);

// Together one million.
const HEADERS = 400_000;
const HELLOS = 150_000;
const MESSAGES = 150_000;
const STREAMS = 150_000;

describe(`wire decoders (seed ${seed})`, () => {
  test(`${HEADERS} random and spoilt headers are refused or within their limits`, () => {
    const random = generator(seed);
    const bytes = new Uint8Array(256);
    const words = new Uint32Array(bytes.buffer, 0, HEADER_WORDS);
    const known = { rkey: 77, address: 0x1000_0000_0000, sizeBytes: 4096, psn: 0xff_fffe };
    let accepted = 0;
    for (let input = 0; input < HEADERS; input++) {
      if (input % 4 === 0) for (let word = 0; word < HEADER_WORDS; word++) words[word] = random(0x1_0000_0000);
      else mutate(bytes, validFrame(bytes, known, random(8), random), random);
      if (frameProblem(words) !== undefined) continue;
      accepted++;
      const type = frameType(words);
      const isSound =
        type >= frameTypes.send &&
        type <= frameTypes.ackRequest &&
        words[headerRow.payloadBytes] <= MAX_MESSAGE_BYTES &&
        words[headerRow.remoteAddress + 1] <= 0x1f_ffff &&
        words[headerRow.sequence] <= 0xff_ffff;
      assert.ok(isSound, `input ${input}: ${words.join(' ')}`);
    }
    assert.ok(accepted > HEADERS / 20, `only ${accepted} got past the first look`);
  });

  test(`${HELLOS} random and spoilt hellos are refused or within their limits`, () => {
    const random = generator(seed + 1);
    const good = encodeHello({ refusal: 0, isLossy: false, fromQp: 3, toQp: 4, fromLid: 5, fromGid: '::1' });
    assert.ok(decodeHello(good));
    for (let input = 0; input < HELLOS; input++) {
      const bytes = good.slice(0, random(8) === 0 ? random(HELLO_BYTES + 1) : HELLO_BYTES);
      if (input % 4 === 0) for (let at = 0; at < bytes.length; at++) bytes[at] = random(256);
      else
        for (let times = random(4); times > 0 && bytes.length > 0; times--) bytes[random(bytes.length)] = random(256);
      const hello = decodeHello(bytes);
      if (hello === undefined) continue;
      assert.ok(bytes.length >= HELLO_BYTES && hello.fromQp <= 0xff_ffff && hello.toQp <= 0xff_ffff, `input ${input}`);
      assert.ok(hello.fromLid <= 0xffff && hello.fromGid.includes(':'), `input ${input}`);
    }
  });

  test(`${MESSAGES} random and spoilt messages beside the rings are refused or within their limits`, () => {
    const random = generator(seed + 3);
    const good = encodeMessage({ kind: 'grant', rkey: 7, access: 15, address: 0x1000_0000_0000, sizeBytes: 4096 });
    assert.ok(decodeMessage(good, MESSAGE_BYTES));
    for (let input = 0; input < MESSAGES; input++) {
      const bytes = good.slice();
      if (input % 4 === 0) for (let at = 0; at < bytes.length; at++) bytes[at] = random(256);
      else for (let times = random(4); times > 0; times--) bytes[4 + random(bytes.length - 4)] = random(256);
      const message = decodeMessage(bytes, random(8) === 0 ? random(MESSAGE_BYTES + 8) : MESSAGE_BYTES);
      if (message?.kind !== 'grant') continue;
      assert.ok(Number.isSafeInteger(message.address) && Number.isSafeInteger(message.sizeBytes), `input ${input}`);
    }
  });

  test(`${STREAMS} streams of spoilt frames change no byte outside the region, and end in RTS or ERR`, () => {
    const random = generator(seed + 2);
    using qp = new FuzzedQp();
    const frame = new Uint8Array(256);
    const stream = new Uint8Array(1024);
    const ends = new Map<string, number>();
    for (let input = 0; input < STREAMS; input++) {
      let length = 0;
      for (let count = 1 + random(4), sequence = 0; count > 0; count--) {
        const bytes = validFrame(frame, qp.known, sequence, random);
        if (random(4) !== 0) mutate(frame, bytes, random);
        stream.set(frame.subarray(0, bytes), length);
        length += bytes;
        if (random(4) !== 0) sequence++;
      }
      if (random(8) === 0) length -= random(HEADER_BYTES);
      if (random(32) === 0) for (let at = 0; at < length; at++) stream[at] = random(256);
      const state = qp.feed(stream.subarray(0, length));
      ends.set(state, (ends.get(state) ?? 0) + 1);
      if (input % 1000 === 0) assert.equal(qp.isSpoilt, false, `input ${input}`);
    }
    assert.equal(qp.isSpoilt, false);
    assert.deepEqual([...ends.keys()].sort(), ['ERR', 'RTS']);
  });
});
