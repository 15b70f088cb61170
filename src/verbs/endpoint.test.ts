import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { decodeEndpoint, type Endpoint, encodeEndpoint, localEndpoint, randomPsn } from './endpoint.ts';
import { paperDevice } from './fixtures/paper-device.ts';

const region = { address: 4096, rkey: 0xffff_ffff, sizeBytes: 64 };
const good: Endpoint = { qpNumber: 5, psn: 6, gid: 'fe80::1', lid: 7, mtu: 1024, regions: { ring: region } };

describe('an endpoint from a stranger', () => {
  test('anything but an endpoint is refused in one short line', () => {
    const wrong: [unknown, RegExp][] = [
      [null, /its endpoint is null/],
      ['text', /its endpoint is "text"/],
      [[], /its endpoint is \[\]/],
      [{ ...encodeEndpoint(good), v: 2 }, /speaks version 2/],
      [{ ...encodeEndpoint(good), qpNumber: 0x100_0000 }, /qpNumber is 16777216; expected 0 to 16777215/],
      [{ ...encodeEndpoint(good), psn: -1 }, /psn is -1/],
      [{ ...encodeEndpoint(good), psn: '6' }, /psn is "6"/],
      [{ ...encodeEndpoint(good), lid: 0.5 }, /lid is 0.5/],
      [{ ...encodeEndpoint(good), mtu: 1500 }, /mtu 1500 is none of/],
      [{ ...encodeEndpoint(good), gid: 'x'.repeat(1000) }, /gid "x{39}… is no address/],
      [{ ...encodeEndpoint(good), gid: undefined }, /gid missing is no address/],
      [{ ...encodeEndpoint(good), regions: undefined }, /regions is missing/],
      [{ ...encodeEndpoint(good), regions: { r: 1 } }, /region "r" is 1/],
      [{ ...encodeEndpoint(good), regions: { r: { ...region, rkey: 2 ** 32 } } }, /rkey is 4294967296/],
      [{ ...encodeEndpoint(good), regions: { r: { ...region, address: 2 ** 53 - 1 } } }, /ends past 2\^53/],
      [{ ...encodeEndpoint(good), regions: { ['n'.repeat(65)]: region } }, /name has 65 characters/],
      [
        { ...encodeEndpoint(good), regions: Object.fromEntries(Array.from({ length: 257 }, (_, i) => [i, region])) },
        /257/,
      ],
    ];
    for (const [value, message] of wrong) {
      assert.throws(() => decodeEndpoint(value), { code: 'MILLRACE_ERR_FAILED', message });
      assert.throws(
        () => decodeEndpoint(value),
        ({ message: text }: Error) => text.length < 200 && !text.includes('\n'),
      );
    }
  });

  test('whatever JSON there is, it is an endpoint or a refusal', () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        try {
          decodeEndpoint(JSON.parse(text));
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
        const endpoint: Endpoint = { qpNumber, psn, lid, gid: '::1', mtu: 4096, regions: named };
        const decoded = decodeEndpoint(JSON.parse(JSON.stringify(encodeEndpoint(endpoint))));
        assert.deepEqual({ ...decoded, regions: { ...decoded.regions } }, { ...endpoint, regions: { ...named } });
      }),
    );
  });

  test('a region called __proto__ is a region', () => {
    const line = JSON.stringify(encodeEndpoint(good)).replace('"ring"', '"__proto__"');
    assert.deepEqual(Object.keys(decodeEndpoint(JSON.parse(line)).regions), ['__proto__']);
  });
});

test('the local endpoint is that of the first port, with a random PSN of 24 bits', () => {
  using device = paperDevice();
  const qp = device.createPd().createQp({ sendCq: device.createCq() });
  const { psn, ...rest } = localEndpoint(qp);
  assert.deepEqual(rest, { qpNumber: qp.number, gid: 'fe80::7', lid: 7, mtu: 1024, regions: {} });
  const psns = new Set([psn, ...Array.from({ length: 100 }, () => randomPsn())]);
  assert.ok(psns.size > 90);
  for (const value of psns) assert.ok(Number.isInteger(value) && value >= 0 && value <= 0xff_ffff);
});
