// A hostile peer in a live connection loses its QP, and no other connection is disturbed.
// Runs in a process of its own: it counts the descriptors of its process.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { describe, test } from 'node:test';
import { modifyToRts } from '../../../test/conformance/connect.ts';
import { Rig } from '../../../test/conformance/rig.ts';
import { reap, turn, until } from '../../../test/conformance/wait.ts';
import type { Qp } from '../index.ts';
import { generator, type Known, mutate, validFrame } from './fixtures/mutation.ts';
import { dialShm, dialTcp, helloTo, oddDescriptors, RAW_PEER, RawShmPeer, talkTcp } from './fixtures/raw-peer.ts';
import { linkedWires, openSoftPair, type Wire } from './fixtures/soft-pair.ts';
import { beginFrame, frameTypes, HEADER_BYTES, HEADER_WORDS, headerRow } from './frame.ts';
import { encodeMessage } from './shm-message.ts';

const bounded = { timeout: 30_000 };
// MILLRACE_FUZZ_SEED repeats a run.
const seed = Number(process.env.MILLRACE_FUZZ_SEED ?? Date.now() % 1_000_000_000);

/** A QP of the right end that waits for the rawPeer. */
function victimOf(rig: Rig): Qp {
  const qp = rig.right.createQp();
  const { gid, lid, qpNumber } = RAW_PEER;
  const attributes = { path: { gid, lid }, timeout: 20, maxDestRdAtomic: 4 };
  modifyToRts(qp, 'RTS', 100, { device: rig.right.device, qpNumber, psn: 100 }, { attributes });
  rig.right.receive(1, 0, 64, qp);
  return qp;
}

/** The two who have nothing to do with it. */
async function bystandersGoOn({ left, right }: Rig): Promise<void> {
  right.receive(3, 1024, 8);
  left.post((batch) => {
    batch.send(1).sge(...left.at(0, 8));
    batch.write(2, right.mr.address + 2048, right.mr.rkey).sge(...left.at(0, 8));
  });
  assert.deepEqual(await left.sentStatuses(2), ['1:SUCCESS', '2:SUCCESS']);
  // Receives of dead QPs are flushed into the same queue.
  await until('the bystander to receive', () => reap(right.receiveCq).some(({ wrId }) => wrId === 3));
}

function frame(type: number, fill: (words: Uint32Array) => void, payloadBytes = 0): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES + Math.min(payloadBytes, 1024));
  const words = new Uint32Array(bytes.buffer, 0, HEADER_WORDS);
  beginFrame(words, type, 0, 100, payloadBytes);
  fill(words);
  return bytes;
}

interface Attack {
  readonly bytes: Uint8Array;
  /**
   * The first frame alone ends the QP; otherwise it may have been harmless, and the end of the
   * connection does.
   */
  readonly isFatal: boolean;
}

/** What no peer may get away with. */
function attacks(known: Known): readonly Attack[] {
  const random = generator(seed);
  const mutated = Array.from({ length: 20 }, () => {
    const bytes = new Uint8Array(256);
    const length = validFrame(bytes, known, 0, random);
    mutate(bytes, length, random);
    // Invalid bytes follow, so that the connection ends with an error in any case.
    return Buffer.concat([bytes.subarray(0, length), Buffer.alloc(256, 0xee)]);
  });
  // Each alone is a request like any other; so many without reading an answer are not.
  const atomics = Array.from({ length: 5000 }, (_, index) =>
    frame(frameTypes.fetchAdd, (words) => {
      words[headerRow.sequence] = 100 + index;
      words[headerRow.rkey] = known.rkey;
      words[headerRow.remoteAddress] = known.address;
      words[headerRow.remoteAddress + 1] = Math.floor(known.address / 2 ** 32);
    }),
  );
  const reads = Array.from({ length: 5000 }, (_, index) =>
    frame(frameTypes.read, (words) => {
      words[headerRow.sequence] = 100 + index;
      words[headerRow.rkey] = known.rkey;
      words[headerRow.remoteAddress] = known.address;
      words[headerRow.remoteAddress + 1] = Math.floor(known.address / 2 ** 32);
      words[headerRow.operandA] = 65_536;
    }),
  );
  const fatal = [
    randomBytes(4096),
    Buffer.alloc(4096),
    frame(frameTypes.ack, () => {}),
    frame(
      frameTypes.write,
      (words) => words.fill(0xffff_ffff, headerRow.remoteAddress, headerRow.remoteAddress + 1),
      8,
    ),
    frame(frameTypes.fetchAdd, (words) => words.fill(3, headerRow.rkey, headerRow.remoteAddress)),
    frame(77, () => {}),
    Buffer.concat(reads),
  ];
  // A promise of a gigabyte, and nothing of it.
  const open = [frame(frameTypes.send, () => {}, 0x4000_0000), Buffer.concat(atomics), ...mutated];
  return [...fatal.map((bytes) => ({ bytes, isFatal: true })), ...open.map((bytes) => ({ bytes, isFatal: false }))];
}

function knownOf({ right }: Rig): Known {
  return { rkey: right.mr.rkey, address: right.mr.address, sizeBytes: right.mr.sizeBytes, psn: 100 };
}

describe(`a hostile peer (seed ${seed})`, () => {
  for (const wire of linkedWires) {
    test(
      `over ${wire}, a peer that sends no valid hello gets no QP, and no other connection is disturbed`,
      bounded,
      async () => {
        await using pair = openSoftPair(wire);
        using rig = Rig.build(pair);
        const tested = victimOf(rig);
        await bystandersGoOn(rig);
        const before = readdirSync('/proc/self/fd').length;
        await sayNonsense(wire, rig, pair.runtimeDir, tested);
        await bystandersGoOn(rig);
        assert.equal(tested.state, 'RTS');
        await until('the device to hang up on them', () => readdirSync('/proc/self/fd').length <= before + 1);
      },
    );

    test(
      `over ${wire}, a peer that sends garbage loses its QP, and no other connection is disturbed`,
      bounded,
      async () => {
        await using pair = openSoftPair(wire);
        using rig = Rig.build(pair);
        await bystandersGoOn(rig);
        rig.right.mr.bytes.fill(0);
        for (const [index, attack] of attacks(knownOf(rig)).entries()) {
          const tested = victimOf(rig);
          const isOver = (): boolean => tested.state === 'ERR';
          await attackWith(wire, rig, pair.runtimeDir, tested, attack.bytes, async () => {
            if (attack.isFatal) await until(`attack ${index} to end the QP`, isOver);
            else for (let turns = 0; turns < 20; turns++) await turn();
          });
          await until(`the end of attack ${index} to end the QP`, isOver);
          tested.close();
          reap(rig.right.receiveCq);
          reap(rig.right.sendCq);
        }
        await bystandersGoOn(rig);
      },
    );
  }

  test('over shm, a peer that stores invalid indexes in the rings loses its QP', bounded, async () => {
    await using pair = openSoftPair('shm');
    using rig = Rig.build(pair);
    await bystandersGoOn(rig);
    for (const value of [-1, 1, 0x7fff_ffff, -0x8000_0000, 65_537, 12_345_678]) {
      const tested = victimOf(rig);
      using rawPeer = new RawShmPeer(rig.right.device, pair.runtimeDir, tested.number);
      await until('the tested QP to answer', () => rawPeer.isAccepted);
      rawPeer.scribble(value);
      rig.right.post((batch) => batch.send(1).sge(...rig.right.at(0, 64)), tested);
      rawPeer.scribble(value);
      await until(`${value} to end the QP`, () => tested.state === 'ERR');
      tested.close();
      reap(rig.right.receiveCq);
      reap(rig.right.sendCq);
    }
    await bystandersGoOn(rig);
  });

  test(
    'over shm, an invalid message on the socket beside the rings ends the QP; unasked descriptors are closed',
    bounded,
    async () => {
      await using pair = openSoftPair('shm');
      using rig = Rig.build(pair);
      await bystandersGoOn(rig);
      const before = readdirSync('/proc/self/fd').length;
      const grant = { kind: 'grant', rkey: 9, access: 15, address: 0, sizeBytes: 4096 } as const;
      for (const message of [
        randomBytes(64),
        new Uint8Array(7),
        encodeMessage(grant),
        encodeMessage({ kind: 'ask', rkey: 3 }),
      ]) {
        const tested = victimOf(rig);
        {
          using rawPeer = new RawShmPeer(rig.right.device, pair.runtimeDir, tested.number);
          await until('the tested QP to answer', () => rawPeer.isAccepted);
          const fds = oddDescriptors();
          rawPeer.socket.sendFds(
            message,
            fds.map(({ fd }) => fd),
          );
          for (const fd of fds) fd.close();
          for (let turns = 0; turns < 20; turns++) await turn();
        }
        await until('the QP to end', () => tested.state === 'ERR');
        tested.close();
        reap(rig.right.receiveCq);
        reap(rig.right.sendCq);
      }
      await bystandersGoOn(rig);
      await until('all descriptors to be closed', () => readdirSync('/proc/self/fd').length <= before + 1);
    },
  );
});

async function sayNonsense(wire: Wire, { right }: Rig, runtimeDir: string, tested: Qp): Promise<void> {
  const hello = helloTo(tested.number);
  const strange = helloTo(tested.number);
  // The right QP, the wrong peer.
  strange[12] = 9;
  const openings = [
    randomBytes(64),
    randomBytes(1000),
    hello.subarray(0, 30),
    new Uint8Array(1),
    strange,
    helloTo(0xff_ff00),
  ];
  if (wire === 'tcp') {
    const sockets = openings.flatMap((bytes) => Array.from({ length: 10 }, () => dialTcp(right.device, bytes).end()));
    await until('all to be done', () =>
      sockets.every(({ destroyed, writableFinished }) => destroyed || writableFinished),
    );
    for (const socket of sockets) socket.destroy();
    return;
  }
  for (const bytes of [...openings, hello]) {
    using socket = dialShm(right.device, runtimeDir);
    const fds = oddDescriptors();
    socket.sendFds(bytes, bytes === hello ? [] : fds.map(({ fd }) => fd));
    for (const fd of fds) fd.close();
    for (let turns = 0; turns < 5; turns++) await turn();
  }
  // A proper hello with rings that are none.
  using socket = dialShm(right.device, runtimeDir);
  const fds = oddDescriptors();
  socket.sendFds(
    hello,
    fds.map(({ fd }) => fd),
  );
  for (const fd of fds) fd.close();
  for (let turns = 0; turns < 20; turns++) await turn();
}

/** Says the bytes, and leaves when `observe` has seen enough. */
async function attackWith(
  wire: Wire,
  { right }: Rig,
  runtimeDir: string,
  tested: Qp,
  bytes: Uint8Array,
  observe: () => Promise<void>,
): Promise<void> {
  if (wire === 'tcp') {
    const socket = await talkTcp(right.device, tested.number, bytes);
    await observe();
    socket.destroy();
    return;
  }
  using rawPeer = new RawShmPeer(right.device, runtimeDir, tested.number);
  await until('the tested QP to answer', () => rawPeer.isAccepted);
  rawPeer.write(bytes.subarray(0, 65_536));
  await observe();
}
