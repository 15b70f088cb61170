import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { addon } from './addon.ts';
import { type Address, encodeAddress, ip, NOT_WHOLE, PacketCheck, PacketSeal, SharedMemory } from './index.ts';

const REMOTE_AT = 32;
const PACKETS_AT = 64;
const BTH_BYTES = 12;
const ICRC_BYTES = 4;
const routes = {
  ipv4: [ip('192.0.2.1', 49_152), ip('198.51.100.7', 4791)],
  ipv6: [ip('2001:db8::1', 49_152), ip('2001:db8::2:3', 4791)],
} as const;
type Family = keyof typeof routes;

/** A slab that starts with the addresses of both sides. */
function slabOf(local: Address, remote: Address, sizeBytes = 65_536): SharedMemory {
  const slab = SharedMemory.create({ sizeBytes });
  new Uint8Array(slab.buffer).set(encodeAddress(local));
  new Uint8Array(slab.buffer).set(encodeAddress(remote), REMOTE_AT);
  return slab;
}

/**
 * The headers before a packet as annex A17 of the InfiniBand specification has the ICRC see them.
 */
function pseudoHeaders(family: Family, udpBytes: number, identification: number): Buffer {
  const [from, to] = routes[family].map(encodeAddress);
  const header = Buffer.alloc(family === 'ipv4' ? 36 : 56, 0xff);
  const ipAt = 8;
  if (family === 'ipv4') {
    header.writeUInt8(0x45, ipAt);
    header.writeUInt16BE(20 + udpBytes, ipAt + 2);
    header.writeUInt16BE(identification, ipAt + 4);
    header.writeUInt16BE(0x4000, ipAt + 6);
    header.writeUInt8(17, ipAt + 9);
    header.set(from.subarray(4, 8), ipAt + 12);
    header.set(to.subarray(4, 8), ipAt + 16);
  } else {
    header.writeUInt8(0x6f, ipAt);
    header.writeUInt16BE(udpBytes, ipAt + 4);
    header.writeUInt8(17, ipAt + 6);
    header.set(from.subarray(8, 24), ipAt + 8);
    header.set(to.subarray(8, 24), ipAt + 24);
  }
  const udpAt = header.length - 8;
  header.set(from.subarray(2, 4), udpAt);
  header.set(to.subarray(2, 4), udpAt + 2);
  header.writeUInt16BE(udpBytes, udpAt + 4);
  return header;
}

/** By zlib, which has nothing in common with native/crc32.c but the polynomial. */
function expectedIcrc(family: Family, packet: Uint8Array, identification: number): number {
  const seen = Buffer.from(packet);
  seen[4] = 0xff;
  return crc32(seen, crc32(pseudoHeaders(family, 8 + packet.length + ICRC_BYTES, identification)));
}

describe('packets', () => {
  test('a batch of none, of too many, and ranges outside the slab are refused', () => {
    using slab = slabOf(...routes.ipv4, 4096);
    using rows = SharedMemory.create({ sizeBytes: 4096 });
    const { id } = slab;
    for (const [local, first, count, pieces] of [
      [0, 0, 0, 0],
      [0, 0, 4097, 0],
      [0, 0, -1, 0],
      [0, -1, 1, 0],
      [0, 0, 1, -1],
      [0, 0, 1, 65_537],
      [0, 0, 1, 257],
      [-1, 0, 1, 0],
      [4096 - 27, 0, 1, 0],
      [0, 128, 1, 0],
      [0, 0, 129, 0],
    ] as const) {
      const what = `${local} ${first} ${count} ${pieces}`;
      assert.throws(() => addon.sealPackets(id, local, rows.id, first, count, rows.id, pieces), RangeError, what);
    }
    for (const [local, count] of [
      [0, 0],
      [0, 4097],
      [0, 257],
      [-1, 1],
      [4096 - 27, 1],
    ] as const) {
      assert.throws(() => addon.checkPackets(id, local, rows.id, count), RangeError, `${local} ${count}`);
    }
  });

  test('pieces that are shorter or longer than the payload, or not there, are refused', () => {
    using slab = slabOf(...routes.ipv4);
    using data = SharedMemory.create({ sizeBytes: 4096 });
    using seal = new PacketSeal(slab, 0, 4, 4);
    for (const [payloadBytes, offset, length] of [
      [8, 0, 7],
      [8, 0, 9],
      [8, 4095, 8],
      [8, 2 ** 33, 8],
      [8, 2 ** 53 - 1, 8],
    ] as const) {
      seal.add(PACKETS_AT, BTH_BYTES, payloadBytes, REMOTE_AT, 0);
      seal.piece(data, offset, length);
      assert.throws(() => seal.run(), RangeError, `${payloadBytes} from ${length} at ${offset}`);
    }
    seal.add(PACKETS_AT, BTH_BYTES, 8, REMOTE_AT, 0);
    assert.throws(() => seal.run(), /shorter/);
    // Nothing is left of a batch that was refused.
    assert.equal(seal.count, 0);
    seal.run();
  });

  test('a packet between an IPv4 and an IPv6 address cannot be made, and is not whole', () => {
    using slab = slabOf(routes.ipv4[0], routes.ipv6[1]);
    using seal = new PacketSeal(slab, 0, 1, 1);
    seal.add(PACKETS_AT, BTH_BYTES, 0, REMOTE_AT, 0);
    assert.throws(() => seal.run(), /two kinds of addresses/);
    using check = new PacketCheck(slab, 0);
    check.add(PACKETS_AT, 16, REMOTE_AT);
    check.run();
    assert.equal(check.result(0), NOT_WHOLE);
  });

  test('rows of junk throw or stay inside their memories', () => {
    using guard = SharedMemory.create({ sizeBytes: 65_536 });
    using slab = slabOf(...routes.ipv4);
    using rows = SharedMemory.create({ sizeBytes: 4096 });
    const words = new Uint32Array(rows.buffer);
    const word = fc.oneof(
      fc.nat({ max: 80 }),
      fc.nat({ max: 65_600 }),
      fc.nat({ max: 0xffff_ffff }),
      fc.constant(slab.id),
    );
    const junk = fc.array(word, { minLength: 32, maxLength: 32 });
    let accepted = 0;
    const property = fc.property(junk, fc.boolean(), fc.nat({ max: 4 }), (list, isSeal, pieces) => {
      words.set(list);
      try {
        if (isSeal) addon.sealPackets(slab.id, 0, rows.id, 0, 1, rows.id, pieces);
        else addon.checkPackets(slab.id, 0, rows.id, 2);
        accepted++;
      } catch (error) {
        assert.ok(
          error instanceof RangeError || (error as { code?: string }).code === 'ERR_MEMORY_CLOSED',
          String(error),
        );
      }
    });
    fc.assert(property, { numRuns: 20_000, endOnFailure: true });
    assert.ok(accepted > 0);
    assert.ok(new Uint8Array(guard.buffer).every((byte) => byte === 0));
  });

  for (const family of ['ipv4', 'ipv6'] as const) {
    test(`${family}: the ICRC is zlib's CRC-32 for all lengths to 5000 at any alignment`, () => {
      using slab = slabOf(...routes[family]);
      using data = SharedMemory.create({ sizeBytes: 8192 });
      using seal = new PacketSeal(slab, 0, 1, 1);
      const bytes = new Uint8Array(slab.buffer);
      const view = new DataView(slab.buffer);
      const payload = new Uint8Array(data.buffer);
      for (let at = 0; at < payload.length; at++) payload[at] = (at * 167 + (at >> 3)) & 0xff;
      for (let length = 0; length <= 5000; length++) {
        // Padding makes payloads multiples of four; a longer header makes all lengths.
        const extra = length & 3;
        const offset = PACKETS_AT + ((length * 7) % 33);
        bytes.fill(length & 0xff, offset, offset + BTH_BYTES + extra);
        seal.add(offset, BTH_BYTES + extra, length - extra, REMOTE_AT, length);
        if (length > extra) seal.piece(data, length % 61, length - extra);
        seal.run();
        const packet = bytes.subarray(offset, offset + BTH_BYTES + length);
        const actual = view.getUint32(offset + BTH_BYTES + length, true);
        if (actual !== expectedIcrc(family, packet, length)) assert.fail(`${length} bytes at ${offset}`);
      }
    });
  }

  test('a payload in pieces is gathered, padded with zeros and checked', () => {
    using slab = slabOf(...routes.ipv4);
    using came = slabOf(routes.ipv4[1], routes.ipv4[0]);
    using data = SharedMemory.create({ sizeBytes: 65_536 });
    using seal = new PacketSeal(slab, 0, 64, 512);
    using check = new PacketCheck(came, 0);
    const payload = new Uint8Array(data.buffer);
    for (let at = 0; at < payload.length; at++) payload[at] = (at * 31) & 0xff;
    const piece = fc.tuple(fc.nat({ max: 65_000 }), fc.nat({ max: 200 }));
    const packet = fc.tuple(fc.array(piece, { maxLength: 8 }), fc.nat({ max: 0xffff }));
    const property = fc.property(fc.array(packet, { minLength: 1, maxLength: 16 }), (packets) => {
      const bytes = new Uint8Array(slab.buffer);
      bytes.fill(0xee, PACKETS_AT);
      check.clear();
      let offset = PACKETS_AT;
      const expected = packets.map(([pieces, identification]) => {
        const whole = pieces.flatMap(([from, length]) => [...payload.subarray(from, from + length)]);
        seal.add(offset, BTH_BYTES, whole.length, REMOTE_AT, identification);
        for (const [from, length] of pieces) seal.piece(data, from, length);
        const sizeBytes = BTH_BYTES + whole.length + (-whole.length & 3) + ICRC_BYTES;
        check.add(offset, sizeBytes, REMOTE_AT);
        offset += sizeBytes;
        return [...new Uint8Array(BTH_BYTES).fill(0xee), ...whole, ...new Uint8Array(-whole.length & 3)];
      });
      seal.run();
      new Uint8Array(came.buffer).set(bytes.subarray(PACKETS_AT), PACKETS_AT);
      check.run();
      for (const [index, [, identification]] of packets.entries()) {
        assert.equal(check.result(index), identification);
        const at = check.offset(index);
        const length = check.length(index) - ICRC_BYTES;
        assert.deepEqual([...bytes.subarray(at, at + length)], expected[index]);
      }
      assert.equal(bytes[offset], 0xee);
    });
    fc.assert(property, { numRuns: 100, endOnFailure: true });
  });

  test('all identifications are found, for packets of many lengths', () => {
    using slab = slabOf(...routes.ipv4);
    using came = slabOf(routes.ipv4[1], routes.ipv4[0]);
    using data = SharedMemory.create({ sizeBytes: 65_536 });
    using seal = new PacketSeal(slab, 0, 1, 1);
    using check = new PacketCheck(came, 0);
    for (let identification = 0; identification < 65_536; identification += 13) {
      const payloadBytes = ((identification * 4) % 1000) & ~3;
      const sizeBytes = BTH_BYTES + payloadBytes + ICRC_BYTES;
      seal.add(PACKETS_AT, BTH_BYTES, payloadBytes, REMOTE_AT, identification);
      if (payloadBytes > 0) seal.piece(data, 0, payloadBytes);
      seal.run();
      new Uint8Array(came.buffer).set(new Uint8Array(slab.buffer, PACKETS_AT, sizeBytes), PACKETS_AT);
      check.clear();
      check.add(PACKETS_AT, sizeBytes, REMOTE_AT);
      check.run();
      assert.equal(check.result(0), identification);
    }
  });
});
