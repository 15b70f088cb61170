import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { paperDevice } from '../fixtures/paper-device.ts';
import { localQpEndpoint, randomPsn } from '../local-endpoint.ts';
import { decodeQpEndpoint, encodeQpEndpoint, type QpEndpoint } from './qp-endpoint.ts';

const region = { address: 4096, rkey: 0xffff_ffff, sizeBytes: 64 };
const good: QpEndpoint = { qpNumber: 5, psn: 6, gid: 'fe80::1', lid: 7, mtu: 1024, regions: { ring: region } };

describe('an endpoint from an unknown peer', () => {
  test('anything but an endpoint is refused in one short line', () => {
    const wrong: [unknown, RegExp][] = [
      [null, /qp message is null/],
      ['text', /qp message is "text"/],
      [[], /qp message is a list of 0/],
      [{ kind: 'ready', qpNumber: 5 }, /ready, where hello is expected/],
      [{ ...encodeQpEndpoint(good), version: 1 }, /its version is 1; expected 2/],
      [{ ...encodeQpEndpoint(good), qpNumber: 0x100_0000 }, /qpNumber is 16777216; expected 0 to 16777215/],
      [{ ...encodeQpEndpoint(good), psn: -1 }, /psn is -1/],
      [{ ...encodeQpEndpoint(good), psn: '6' }, /psn is "6"/],
      [{ ...encodeQpEndpoint(good), lid: 0.5 }, /lid is 0.5/],
      [{ ...encodeQpEndpoint(good), mtu: 1500 }, /mtu is 1500; expected 256 or 512/],
      [{ ...encodeQpEndpoint(good), gid: 'x'.repeat(1000) }, /gid is "x{39}; expected an IPv6 address/],
      [{ ...encodeQpEndpoint(good), gid: '10.0.0.1' }, /gid is "10.0.0.1"; expected an IPv6 address/],
      [{ ...encodeQpEndpoint(good), gid: 'fe80::1%lo' }, /gid is "fe80::1%lo"; expected an IPv6 address/],
      [{ ...encodeQpEndpoint(good), gid: undefined }, /gid is missing/],
      [{ ...encodeQpEndpoint(good), regions: undefined }, /regions is missing/],
      [{ ...encodeQpEndpoint(good), regions: { r: 1 } }, /regions.r is 1/],
      [{ ...encodeQpEndpoint(good), regions: { r: { ...region, rkey: 2 ** 32 } } }, /rkey is 4294967296/],
      [{ ...encodeQpEndpoint(good), regions: { r: { ...region, address: 2 ** 53 - 1 } } }, /ends below 2\^53/],
      [{ ...encodeQpEndpoint(good), regions: { ['n'.repeat(65)]: region } }, /a key of 65 characters/],
      [
        { ...encodeQpEndpoint(good), regions: Object.fromEntries(Array.from({ length: 257 }, (_, i) => [i, region])) },
        /257/,
      ],
    ];
    for (const [value, message] of wrong) {
      assert.throws(() => decodeQpEndpoint(value), { code: 'MILLRACE_ERR_PROTOCOL', message });
    }
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
