import assert from 'node:assert/strict';
import { duplexPair } from 'node:stream';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { formatGid } from '../verbs/index.ts';
import { ADDRESS_BYTES, decodeAddress, encodeAddress, exchange } from './pingpong-exchange.ts';

const { signal } = new AbortController();
const failed = { code: 'MILLRACE_ERR_FAILED' };
const here = { lid: 0, qpNumber: 0x11, psn: 0xad10c, gid: '::ffff:10.7.0.1' };
/** What ibv_rc_pingpong sends for this address. */
const text = '0000:000011:0ad10c:00000000000000000000ffff0a070001\0';

describe('the exchange of ibv_rc_pingpong', () => {
  test('text that is no address is refused', () => {
    for (const wrong of [
      '',
      text.slice(0, -1),
      `${text}\0`,
      text.replace('\0', '0'),
      text.replace('000011', '00001g'),
      text.replace(':', ' '),
      'GET / HTTP/1.1\r\n'.repeat(4).slice(0, ADDRESS_BYTES),
    ]) {
      assert.throws(() => decodeAddress(Buffer.from(wrong)), failed, JSON.stringify(wrong));
    }
    fc.assert(
      fc.property(fc.uint8Array({ minLength: ADDRESS_BYTES, maxLength: ADDRESS_BYTES }), (bytes) => {
        assert.throws(() => decodeAddress(Buffer.from(bytes)), failed);
      }),
    );
  });

  test('an address has the format of ibv_rc_pingpong, and is decoded as it was', () => {
    assert.equal(encodeAddress(here).toString(), text);
    assert.deepEqual(decodeAddress(Buffer.from(text)), here);
    const addresses = fc.record({
      lid: fc.nat(0xffff),
      qpNumber: fc.nat(0xff_ffff),
      psn: fc.nat(0xff_ffff),
      gid: fc.uint8Array({ minLength: 16, maxLength: 16 }).map(formatGid),
    });
    fc.assert(
      fc.property(addresses, (address) => {
        const bytes = encodeAddress(address);
        assert.equal(bytes.length, ADDRESS_BYTES);
        assert.deepEqual(decodeAddress(bytes), { ...address });
      }),
    );
  });

  test('the server connects before it answers, the client before it sends done', async () => {
    const [client, server] = duplexPair();
    const there = { lid: 7, qpNumber: 2, psn: 3, gid: 'fe80::1' };
    const order: string[] = [];
    const [ofServer, ofClient] = await Promise.all([
      exchange(client, 'client', here, signal, () => order.push('client')),
      exchange(server, 'server', there, signal, () => order.push('server')),
    ]);
    assert.deepEqual([ofServer, ofClient], [there, here]);
    assert.deepEqual(order, ['server', 'client']);
  });

  test('the client sends what ibv_rc_pingpong sends, in pieces or at once', async () => {
    for (const pieces of [[text, 'done\0'], [`${text}done`], [...text.split(''), 'do', 'ne']]) {
      const [client, server] = duplexPair();
      const served = exchange(server, 'server', here, signal, () => {});
      for (const piece of pieces) client.write(piece);
      assert.deepEqual(await served, here);
      assert.equal(client.read(ADDRESS_BYTES)?.toString(), text);
    }
  });

  test('a peer that closes the connection, stays silent or does not send done is an error', async () => {
    for (const [said, message] of [
      ['', /closed the connection/],
      [text.slice(0, 20), /closed the connection/],
      [`${text}nope\0`, /did not send "done"/],
    ] as const) {
      const [client, server] = duplexPair();
      const served = exchange(server, 'server', here, signal, () => {});
      client.end(said);
      await assert.rejects(served, { ...failed, message });
    }
    const controller = new AbortController();
    const silent = exchange(duplexPair()[0], 'client', here, controller.signal, () => {});
    controller.abort(new Error('too slow'));
    await assert.rejects(silent, /too slow/);
  });
});
