import assert from 'node:assert/strict';
import { SocketAddress } from 'node:net';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { type Address, decodeAddress, encodeAddress, formatAddress, ip } from './index.ts';

describe('socket addresses', () => {
  test('what is no address is refused', () => {
    const wrong: Address[] = [
      { family: 'ipv4', host: '1.2.3', port: 1 },
      { family: 'ipv4', host: '::1', port: 1 },
      { family: 'ipv6', host: '1.2.3.4', port: 1 },
      { family: 'ipv6', host: 'fe80::1%eth0', port: 1 },
      { family: 'ipv4', host: '1.2.3.4', port: 65536 },
      { family: 'ipv4', host: '1.2.3.4', port: 1.5 },
      { family: 'unix', path: 'a'.repeat(108) },
      { family: 'unix', path: 'a\0b' },
    ];
    for (const address of wrong) assert.throws(() => encodeAddress(address), { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => ip('localhost', 1), { code: 'MILLRACE_ERR_USAGE' });
  });

  test('bytes that are no address of a known family are refused', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 130 }), fc.nat(200), (bytes, size) => {
        try {
          formatAddress(decodeAddress(bytes, size));
        } catch (error) {
          assert.equal((error as { code?: string }).code, 'MILLRACE_ERR_USAGE');
        }
      }),
    );
  });

  test('the bytes are those of <netinet/in.h>', () => {
    assert.deepEqual([...encodeAddress(ip('10.1.2.3', 0x1234)).subarray(0, 8)], [2, 0, 0x12, 0x34, 10, 1, 2, 3]);
    const six = encodeAddress(ip('fd77::a:1', 80));
    assert.deepEqual([...six.subarray(0, 12)], [10, 0, 0, 80, 0, 0, 0, 0, 0xfd, 0x77, 0, 0]);
    assert.deepEqual([...six.subarray(20)], [0, 0x0a, 0, 1, 0, 0, 0, 0]);
  });

  test('encoding and decoding an address gives it back', () => {
    const port = fc.nat(65535);
    const plain = { noNullPrototype: true } as const;
    const canonical = (host: string): string => new SocketAddress({ address: host, family: 'ipv6' }).address;
    const addresses = fc.oneof(
      fc.record({ family: fc.constant('ipv4' as const), host: fc.ipV4(), port }, plain),
      fc.record({ family: fc.constant('ipv6' as const), host: fc.ipV6().map(canonical), port }, plain),
      fc.record(
        { family: fc.constant('unix' as const), path: fc.string({ maxLength: 100 }).filter((s) => !s.includes('\0')) },
        plain,
      ),
      fc.record({ family: fc.constant('unix' as const), path: fc.constantFrom('\0abstract', '\0x') }, plain),
    );
    fc.assert(
      fc.property(addresses, (address: Address) => {
        const bytes = encodeAddress(address);
        assert.deepEqual(decodeAddress(bytes, bytes.length), address);
      }),
      { numRuns: 1000 },
    );
  });

  test('addresses are shown as people write them', () => {
    assert.equal(formatAddress(ip('10.0.0.1', 80)), '10.0.0.1:80');
    assert.equal(formatAddress(ip('::1', 80)), '[::1]:80');
    assert.equal(formatAddress({ family: 'unix', path: '\0millrace' }), 'unix:@millrace');
  });
});
