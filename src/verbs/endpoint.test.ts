import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { decodeQpEndpoint, encodeQpEndpoint, localQpEndpoint, type QpEndpoint, randomPsn } from './endpoint.ts';
import { paperDevice } from './fixtures/paper-device.ts';

const region = { address: 4096, rkey: 0xffff_ffff, sizeBytes: 64 };
const good: QpEndpoint = { qpNumber: 5, psn: 6, gid: 'fe80::1', lid: 7, mtu: 1024, regions: { ring: region } };

describe('an endpoint from a stranger', () => {
  test('anything but an endpoint is refused in one short line', () => {
    const wrong: [unknown, RegExp][] = [
      [null, /its endpoint is null/],
      ['text', /its endpoint is "text"/],
      [[], /its endpoint is \[\]/],
      [{ ...encodeQpEndpoint(good), v: 2 }, /speaks version 2/],
      [{ ...encodeQpEndpoint(good), qpNumber: 0x100_0000 }, /qpNumber is 16777216; expected 0 to 16777215/],
      [{ ...encodeQpEndpoint(good), psn: -1 }, /psn is -1/],
      [{ ...encodeQpEndpoint(good), psn: '6' }, /psn is "6"/],
      [{ ...encodeQpEndpoint(good), lid: 0.5 }, /lid is 0.5/],
      [{ ...encodeQpEndpoint(good), mtu: 1500 }, /mtu 1500 is none of/],
      [{ ...encodeQpEndpoint(good), gid: 'x'.repeat(1000) }, /gid "x{39}… is no address/],
      [{ ...encodeQpEndpoint(good), gid: undefined }, /gid missing is no address/],
      [{ ...encodeQpEndpoint(good), regions: undefined }, /regions is missing/],
      [{ ...encodeQpEndpoint(good), regions: { r: 1 } }, /region "r" is 1/],
      [{ ...encodeQpEndpoint(good), regions: { r: { ...region, rkey: 2 ** 32 } } }, /rkey is 4294967296/],
      [{ ...encodeQpEndpoint(good), regions: { r: { ...region, address: 2 ** 53 - 1 } } }, /ends past 2\^53/],
      [{ ...encodeQpEndpoint(good), regions: { ['n'.repeat(65)]: region } }, /name has 65 characters/],
      [
        { ...encodeQpEndpoint(good), regions: Object.fromEntries(Array.from({ length: 257 }, (_, i) => [i, region])) },
        /257/,
      ],
    ];
    for (const [value, message] of wrong) {
      assert.throws(() => decodeQpEndpoint(value), { code: 'MILLRACE_ERR_FAILED', message });
      assert.throws(
        () => decodeQpEndpoint(value),
        ({ message: text }: Error) => text.length < 200 && !text.includes('\n'),
      );
    }
  });

  test('whatever JSON there is, it is an endpoint or a refusal', () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        try {
          decodeQpEndpoint(JSON.parse(text));
        } catch (error) {
          assert.equal((error as { code?: string }).code, 'MILLRACE_ERR_FAILED');
        }
      }),
    );
  });

  test('what was encoded is decoded, and a region may have any short name', () => {
    const uint = (max: number): fc.Arbitrary<number> => fc.integer({ min: 0, max });
    const regions = fc.dictionary(
      fc.string({ maxLength: 64 }),
      fc.record({ address: uint(2 ** 50), rkey: fc.nat(), sizeBytes: uint(2 ** 40) }, { noNullPrototype: true }),
      { noNullPrototype: true },
    );
    fc.assert(
      fc.property(uint(0xff_ffff), uint(0xff_ffff), uint(0xffff), regions, (qpNumber, psn, lid, named) => {
        const endpoint: QpEndpoint = { qpNumber, psn, lid, gid: '::1', mtu: 4096, regions: named };
        const decoded = decodeQpEndpoint(JSON.parse(JSON.stringify(encodeQpEndpoint(endpoint))));
        assert.deepEqual({ ...decoded, regions: { ...decoded.regions } }, { ...endpoint, regions: { ...named } });
      }),
    );
  });

  test('a region called __proto__ is a region', () => {
    const line = JSON.stringify(encodeQpEndpoint(good)).replace('"ring"', '"__proto__"');
    assert.deepEqual(Object.keys(decodeQpEndpoint(JSON.parse(line)).regions), ['__proto__']);
  });
});

test('the local endpoint is that of the first port, with a random PSN of 24 bits', () => {
  using device = paperDevice();
  const qp = device.createPd().createQp({ sendCq: device.createCq() });
  const { psn, ...rest } = localQpEndpoint(qp);
  assert.deepEqual(rest, { qpNumber: qp.number, gid: 'fe80::7', lid: 7, mtu: 1024, regions: {} });
  const psns = new Set([psn, ...Array.from({ length: 100 }, () => randomPsn())]);
  assert.ok(psns.size > 90);
  for (const value of psns) assert.ok(Number.isInteger(value) && value >= 0 && value <= 0xff_ffff);
});
