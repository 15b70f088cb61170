import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { ip } from '../../../native/index.ts';
import { type CapturedPacket, roceCapture } from './fixtures/pcap.ts';
import { PacketBench } from './fixtures/sealed.ts';
import { extendedBytesOf, parts, partsOf } from './opcode.ts';
import { BTH_BYTES, decodePacket, encodeHeaders, ICRC_BYTES, MAX_HEADER_BYTES, Packet } from './packet.ts';

const captures = ['rxe-6.1', 'rxe-6.12'].map((name) => ({
  name,
  packets: roceCapture(new URL(`../../../../test/vectors/${name}.pcap`, import.meta.url)),
}));
const opcodes = Array.from({ length: 256 }, (_, opcode) => opcode).filter((opcode) => partsOf(opcode) !== 0);
/** Where the congestion marks are: routers change them, so the ICRC leaves them out. */
const MARKS_AT = 4;

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
}

function decoded(bytes: Uint8Array): Packet {
  const packet = new Packet();
  assert.equal(decodePacket(viewOf(bytes), 0, bytes.length, packet), undefined);
  return packet;
}

function countBy<T>(items: readonly T[], keyOf: (item: T) => string): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const item of items) counts[keyOf(item)] = (counts[keyOf(item)] ?? 0) + 1;
  return counts;
}

const kindOf = ({ from, bytes }: CapturedPacket): string => `${from.family} ${bytes[0].toString(16).padStart(2, '0')}`;

/** One packet of each kind. */
function samples(packets: readonly CapturedPacket[]): CapturedPacket[] {
  return [...new Map(packets.map((packet) => [kindOf(packet), packet])).values()];
}

// What is in both files; the newer kernel's has one CM message more.
const expectedKinds: Record<string, number> = {
  'ipv4 00': 8,
  'ipv4 01': 8,
  'ipv4 02': 8,
  'ipv4 04': 20,
  'ipv4 06': 5,
  'ipv4 07': 5,
  'ipv4 08': 5,
  'ipv4 0a': 12,
  'ipv4 0c': 7,
  'ipv4 0d': 5,
  'ipv4 0e': 5,
  'ipv4 0f': 5,
  'ipv4 10': 2,
  'ipv4 11': 45,
  'ipv4 12': 10,
  'ipv4 13': 5,
  'ipv4 14': 5,
  'ipv4 20': 6,
  'ipv4 22': 6,
  'ipv4 64': 17,
  'ipv6 00': 8,
  'ipv6 01': 8,
  'ipv6 02': 8,
  'ipv6 11': 8,
};

describe('RoCEv2 packets', () => {
  for (const { name, packets } of captures) {
    test(`${name}: the capture holds packets of every kind that the kernel was made to send`, () => {
      const kinds = countBy(packets, kindOf);
      if (name === 'rxe-6.12') kinds['ipv4 64']--;
      assert.deepEqual(kinds, expectedKinds);
    });

    test(`${name}: every packet decodes, and is the same bytes when it is made again`, () => {
      using bench = new PacketBench();
      for (const { number, from, to, identification, bytes } of packets) {
        const packet = decoded(bytes);
        const payload = bytes.subarray(packet.payloadOffset, packet.payloadOffset + packet.payloadBytes);
        assert.equal(packet.padBytes, -payload.length & 3);
        assert.deepEqual(bench.seal(from, to, packet, payload, identification), bytes, `packet ${number}`);
      }
    });

    test(`${name}: the check finds the identification that the kernel used`, () => {
      using bench = new PacketBench();
      for (const { number, from, to, identification, bytes } of packets) {
        assert.equal(bench.check(from, to, bytes), identification, `packet ${number}`);
      }
    });

    test(`${name}: any flipped bit is seen, but for congestion marks`, () => {
      using bench = new PacketBench();
      for (const { number, from, to, identification, bytes } of samples(packets)) {
        assert.equal(bench.check(from, to, bytes), identification);
        for (let bit = 0; bit < bytes.length * 8; bit++) {
          const isMark = bit >>> 3 === MARKS_AT;
          assert.equal(bench.checkWithFlip(bit) === identification, isMark, `bit ${bit} of packet ${number}`);
        }
      }
    });

    test(`${name}: a packet that claims another sender is not whole, or would have another identification`, () => {
      using bench = new PacketBench();
      for (const { from, to, identification, bytes } of packets) {
        const other = { ...from, port: from.family === 'unix' ? 0 : from.port ^ 1 } as typeof from;
        assert.notEqual(bench.check(other, to, bytes), identification);
        assert.notEqual(bench.check(to, from, bytes), identification);
      }
    });
  }

  test('one that was cut off anywhere is refused, or its ICRC is wrong', () => {
    using bench = new PacketBench();
    for (const { from, to, identification, bytes } of captures.flatMap(({ packets }) => samples(packets))) {
      for (let length = 0; length < bytes.length; length += length < 96 ? 1 : 61) {
        const packet = new Packet();
        const cut = bytes.subarray(0, length);
        const problem = decodePacket(viewOf(cut), 0, length, packet);
        assert.ok(problem !== undefined || bench.check(from, to, cut) !== identification);
      }
    }
  });

  test('the reason is given why a packet is refused', () => {
    const packet = new Packet();
    const problemOf = (opcode: number, length: number, flags = 0): string | undefined => {
      const bytes = new Uint8Array(length);
      bytes.set([opcode, flags].slice(0, length));
      return decodePacket(viewOf(bytes), 0, length, packet);
    };
    assert.equal(problemOf(0x04, 0), 'shorter than its headers');
    assert.equal(problemOf(0x04, 15), 'shorter than its headers');
    assert.equal(problemOf(0x04, 16), undefined);
    assert.equal(problemOf(0x15, 16), 'of an unknown kind');
    assert.equal(problemOf(0xff, 64), 'of an unknown kind');
    assert.equal(problemOf(0x0c, 31), 'shorter than its headers');
    assert.equal(problemOf(0x0c, 32), undefined);
    assert.equal(problemOf(0x0c, 36), 'longer than its headers');
    assert.equal(problemOf(0x04, 17), 'not padded to four bytes');
    assert.equal(problemOf(0x04, 20, 0x30), undefined);
    assert.equal(packet.payloadBytes, 1);
    assert.equal(problemOf(0x04, 18, 0x30), 'shorter than its headers');
    assert.equal(problemOf(0x04, 16, 0x01), 'of another version');
    assert.equal(problemOf(0x64, 23), 'shorter than its headers');
  });

  test('a packet of any kind with any fields comes back as it was', () => {
    using bench = new PacketBench();
    const seen = new Set<number>();
    const whole = fc.nat({ max: 0xffff_ffff });
    const fields = fc.record({
      opcode: fc.constantFrom(...opcodes),
      isSolicited: fc.boolean(),
      isMigrated: fc.boolean(),
      pkey: fc.nat({ max: 0xffff }),
      marks: fc.nat({ max: 0xff }),
      destQp: fc.nat({ max: 0xff_ffff }),
      isAckRequested: fc.boolean(),
      reserved: fc.nat({ max: 0x7f }),
      psn: fc.nat({ max: 0xff_ffff }),
      qkey: whole,
      dethReserved: fc.nat({ max: 0xff }),
      sourceQp: fc.nat({ max: 0xff_ffff }),
      addressHigh: whole,
      addressLow: whole,
      rkey: whole,
      dmaLength: whole,
      swapHigh: whole,
      swapLow: whole,
      compareHigh: whole,
      compareLow: whole,
      syndrome: fc.nat({ max: 0xff }),
      msn: fc.nat({ max: 0xff_ffff }),
      originalHigh: whole,
      originalLow: whole,
      imm: whole,
    });
    const payloads = fc.uint8Array({ maxLength: 300, size: 'max' });
    const routes = fc.constantFrom([ip('10.0.0.1', 50_000), ip('10.0.0.2', 4791)], [ip('fe80::1', 1), ip('::2', 4791)]);
    const property = fc.property(fields, payloads, routes, fc.nat({ max: 0xffff }), (given, data, [from, to], id) => {
      const bits = partsOf(given.opcode);
      const payload = (bits & parts.payload) === 0 ? new Uint8Array(0) : data;
      const bytes = bench.seal(from, to, Object.assign(new Packet(), given), payload, id);
      assert.equal(bytes.length % 4, 0);
      assert.equal(bench.check(from, to, bytes), from.family === 'ipv4' ? id : 0);
      const packet = decoded(bytes);
      assert.deepEqual(fieldsOf(packet), fieldsOf(Object.assign(new Packet(), given)));
      assert.deepEqual(bytes.subarray(packet.payloadOffset, packet.payloadOffset + packet.payloadBytes), payload);
      seen.add(given.opcode);
    });
    fc.assert(property, { numRuns: 4000, endOnFailure: true });
    assert.equal(seen.size, opcodes.length);
    assert.equal(opcodes.length, 21 + 12 + 2);
  });

  test('headers take as many bytes as the kind says, and 40 at most', () => {
    const packet = new Packet();
    const view = new DataView(new ArrayBuffer(64));
    for (const opcode of opcodes) {
      packet.opcode = opcode;
      assert.equal(encodeHeaders(view, 3, packet), BTH_BYTES + extendedBytesOf(opcode));
    }
    assert.equal(Math.max(...opcodes.map((opcode) => BTH_BYTES + extendedBytesOf(opcode))), MAX_HEADER_BYTES);
  });

  test('random bytes are refused with a reason, or are a packet within its bounds', () => {
    const packet = new Packet();
    const problems = new Set<string | undefined>();
    // Half of them with a kind that exists, so that more than the first look is taken.
    const inputs = fc.tuple(
      fc.uint8Array({ maxLength: 80, size: 'max' }),
      fc.nat({ max: 9 }),
      fc.option(fc.constantFrom(...opcodes)),
    );
    const property = fc.property(inputs, ([bytes, before, opcode]) => {
      if (opcode !== null && bytes.length > 1) {
        bytes[0] = opcode;
        bytes[1] &= 0xf0;
      }
      // A look outside the view throws.
      const view = new DataView(Uint8Array.of(...new Uint8Array(before), ...bytes).buffer, 0, before + bytes.length);
      const problem = decodePacket(view, before, bytes.length, packet);
      problems.add(problem);
      if (problem !== undefined) return;
      const { payloadOffset, payloadBytes, padBytes } = packet;
      assert.ok(payloadOffset >= before + BTH_BYTES && payloadBytes >= 0);
      assert.equal(payloadOffset + payloadBytes + padBytes + ICRC_BYTES, before + bytes.length);
    });
    fc.assert(property, { numRuns: 20_000, endOnFailure: true });
    assert.equal(problems.size, 6, [...problems].join(', '));
  });
});

/** The fields that a packet of its kind has, but for those that follow from the payload. */
function fieldsOf(packet: Packet): Partial<Packet> {
  const bits = partsOf(packet.opcode);
  const { opcode, isSolicited, isMigrated, pkey, marks, destQp, isAckRequested, reserved, psn } = packet;
  const { qkey, dethReserved, sourceQp, addressHigh, addressLow, rkey, dmaLength } = packet;
  const { swapHigh, swapLow, compareHigh, compareLow, syndrome, msn, originalHigh, originalLow, imm } = packet;
  return {
    opcode,
    isSolicited,
    isMigrated,
    pkey,
    marks,
    destQp,
    isAckRequested,
    reserved,
    psn,
    ...((bits & parts.deth) !== 0 && { qkey, dethReserved, sourceQp }),
    ...((bits & (parts.reth | parts.atomic)) !== 0 && { addressHigh, addressLow, rkey }),
    ...((bits & parts.reth) !== 0 && { dmaLength }),
    ...((bits & parts.atomic) !== 0 && { swapHigh, swapLow, compareHigh, compareLow }),
    ...((bits & parts.aeth) !== 0 && { syndrome, msn }),
    ...((bits & parts.atomicAck) !== 0 && { originalHigh, originalLow }),
    ...((bits & parts.imm) !== 0 && { imm }),
  };
}
