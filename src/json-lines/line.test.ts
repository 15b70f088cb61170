import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { type Duplex, duplexPair } from 'node:stream';
import { describe, test } from 'node:test';
import { readLine, writeLine } from './line.ts';

function listeners(socket: Duplex): number {
  return socket.eventNames().reduce((sum, name) => sum + socket.listenerCount(name), 0);
}

describe('a line of JSON', () => {
  test('garbage, lines without an end and lines that are too long are refused in one sentence', async () => {
    for (const [bytes, reason] of [
      ['no json\n', /a line that is not JSON/],
      ['\n', /a line that is not JSON/],
      [`"${'x'.repeat(100)}"\n`, /a line of more than 64 bytes/],
      ['x'.repeat(65), /a line of more than 64 bytes/],
      [Buffer.from([0xff, 0xfe, 10]), /a line that is not JSON/],
    ] as const) {
      const [here, there] = duplexPair();
      there.write(bytes);
      await assert.rejects(readLine(here, { maxBytes: 64 }), { code: 'MILLRACE_ERR_PROTOCOL', message: reason });
    }
  });

  test('the end of the stream, its failure and an abort end the wait, now or later', async () => {
    const [ended, other] = duplexPair();
    other.write('{"half":');
    other.end();
    await assert.rejects(readLine(ended), /closed the connection/);
    await assert.rejects(readLine(ended), /closed the connection/);

    const [failing] = duplexPair();
    const reading = readLine(failing);
    failing.destroy(new Error('cable cut'));
    await assert.rejects(reading, /cable cut/);
    await assert.rejects(readLine(failing), /cable cut/);

    const [silent] = duplexPair();
    const controller = new AbortController();
    const aborted = readLine(silent, { signal: controller.signal });
    controller.abort(new Error('enough'));
    await assert.rejects(aborted, /enough/);
    await assert.rejects(readLine(silent, { signal: controller.signal }), /enough/);
    assert.equal(listeners(silent), listeners(duplexPair()[0]));
  });

  test('a connection that is reset reads as one that the peer closed', async () => {
    await using server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const here = connect(port, '127.0.0.1');
    const [there] = await once(server, 'connection');
    const reading = readLine(here);
    there.resetAndDestroy();
    await assert.rejects(reading, /it closed the connection \(ECONNRESET\)/);
    await assert.rejects(readLine(here), /it closed the connection \(ECONNRESET\)/);
  });

  test('a line may come in pieces, and what follows it stays in the stream', async () => {
    const [here, there] = duplexPair();
    const before = listeners(here);
    const first = readLine(here);
    for (const piece of ['{"a"', ':1}', '\n{"b":2}\nrest']) there.write(piece);
    assert.deepEqual(await first, { a: 1 });
    assert.deepEqual(await readLine(here), { b: 2 });
    assert.equal(listeners(here), before);
    there.end(' of it');
    let rest = '';
    for await (const chunk of here) rest += chunk;
    assert.equal(rest, 'rest of it');
  });

  test('what is written is one line', async () => {
    const [here, there] = duplexPair();
    writeLine(there, { text: 'two\nlines' });
    assert.deepEqual(await readLine(here), { text: 'two\nlines' });
  });
});
