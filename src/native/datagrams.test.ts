import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { addon } from './addon.ts';
import {
  type Address,
  decodeAddress,
  encodeAddress,
  interfaceMtu,
  ip,
  MAX_DATAGRAMS,
  Poller,
  pollEvents,
  ReceiveList,
  SendList,
  SharedMemory,
  Socket,
} from './index.ts';

const PLACE_BYTES = 16_384;
const ADDRESS_ROOM = 128;
const PACKETS_AT = 128;

type Call = (fd: number, slab: number, rows: number, first: number, count: number) => number;
const calls: readonly [send: Call, receive: Call] = [
  (...args) => addon.sendDatagrams(...args),
  (...args) => addon.receiveDatagrams(...args),
];

interface Came {
  readonly bytes: Uint8Array;
  readonly segmentBytes: number;
  readonly isCut: boolean;
  readonly from: Address;
}

/** A socket, and what it needs to send and to receive in batches. */
class Station implements Disposable {
  readonly socket: Socket;
  readonly slab = SharedMemory.create({ sizeBytes: 1 << 20 });
  readonly sends: SendList;
  readonly #came = SharedMemory.create({ sizeBytes: 8 * (PLACE_BYTES + ADDRESS_ROOM) });
  readonly #places = new ReceiveList(this.#came, 0, 8, PLACE_BYTES, ADDRESS_ROOM);
  #end = PACKETS_AT;

  constructor(address: Address) {
    this.socket = Socket.datagram(address.family);
    this.socket.bind(address);
    this.sends = new SendList(this.slab, 512);
  }

  /** Everything goes there. */
  aimAt(other: Station): void {
    new Uint8Array(this.slab.buffer).set(encodeAddress(other.socket.localAddress));
  }

  add(bytes: Uint8Array, segmentBytes = 0, addressBytes = this.#addressBytes): void {
    new Uint8Array(this.slab.buffer).set(bytes, this.#end);
    this.sends.add(this.#end, bytes.length, segmentBytes, 0, addressBytes);
    this.#end += bytes.length;
  }

  get #addressBytes(): number {
    return encodeAddress(this.socket.localAddress).length;
  }

  /** What is there now, or comes within five seconds. */
  receive(): Came[] {
    using poller = Poller.create();
    poller.add(this.socket.fd, pollEvents.in, 0);
    assert.equal(poller.wait(5e9), 1, 'nothing came for 5 s');
    return this.look();
  }

  look(): Came[] {
    const count = this.#places.receive(this.socket);
    return Array.from({ length: count }, (_, index) => {
      const at = this.#places.offset(index);
      const address = new Uint8Array(this.#came.buffer, this.#places.addressOffset(index), ADDRESS_ROOM);
      return {
        bytes: new Uint8Array(this.#came.buffer).slice(at, at + this.#places.length(index)),
        segmentBytes: this.#places.segmentBytes(index),
        isCut: this.#places.isCut(index),
        from: decodeAddress(address, ADDRESS_ROOM),
      };
    });
  }

  receiveAll(bytes: number): Came[] {
    const all: Came[] = [];
    for (let left = bytes; left > 0; ) {
      for (const one of this.receive()) {
        all.push(one);
        left -= one.bytes.length;
      }
    }
    return all;
  }

  [Symbol.dispose](): void {
    for (const part of [this.socket, this.sends, this.slab, this.#places, this.#came]) part.close();
  }
}

function stations(stack: DisposableStack, host = '127.0.0.1'): [Station, Station] {
  const sender = stack.use(new Station(ip(host, 0)));
  const receiver = stack.use(new Station(ip(host, 0)));
  sender.aimAt(receiver);
  return [sender, receiver];
}

function pattern(length: number, seed: number): Uint8Array {
  return Uint8Array.from({ length }, (_, at) => (at * 13 + seed + (at >> 8)) & 0xff);
}

describe('datagrams', () => {
  test('batches of none or too many, and rows or ranges outside their memories, are refused', () => {
    using stack = new DisposableStack();
    const [sender] = stations(stack);
    const { fd } = sender.socket;
    const { id } = sender.slab;
    using rows = SharedMemory.create({ sizeBytes: 4096 });
    const words = new Uint32Array(rows.buffer);
    for (const call of calls) {
      for (const [first, count] of [
        [0, 0],
        [0, MAX_DATAGRAMS + 1],
        [0, -1],
        [-1, 1],
        [128, 1],
        [127, 2],
      ] as const) {
        assert.throws(() => call(fd, id, rows.id, first, count), RangeError, `${first} ${count}`);
      }
      for (const row of [
        [1 << 20, 1, 0, 0, 16],
        [0, (1 << 20) + 1, 0, 0, 16],
        [0xffff_ffff, 1, 0, 0, 16],
      ]) {
        words.set(row);
        assert.throws(() => call(fd, id, rows.id, 0, 1), RangeError, row.join(' '));
      }
    }
    words.set([0, 1, 0, 1 << 20, 16]);
    assert.throws(() => addon.sendDatagrams(fd, id, rows.id, 0, 1), RangeError);
    words.set([0, 1, 1 << 20, 16]);
    assert.throws(() => addon.receiveDatagrams(fd, id, rows.id, 0, 1), RangeError);
    assert.throws(() => addon.sendDatagrams(fd, 987_654, rows.id, 0, 1));
    assert.equal(addon.sendDatagrams(987_654, id, rows.id, 1, 1), -9);
  });

  test('rows of junk throw, fail with an errno, or go nowhere', () => {
    using stack = new DisposableStack();
    const [sender] = stations(stack);
    using rows = SharedMemory.create({ sizeBytes: 4096 });
    const word = fc.oneof(fc.nat({ max: 40 }), fc.nat({ max: 1 << 21 }), fc.nat({ max: 0xffff_ffff }));
    const property = fc.property(fc.array(word, { minLength: 16, maxLength: 16 }), fc.boolean(), (words, isSend) => {
      new Uint32Array(rows.buffer).set(words);
      const call = calls[isSend ? 0 : 1];
      try {
        assert.ok(call(sender.socket.fd, sender.slab.id, rows.id, 0, 2) <= 2);
      } catch (error) {
        assert.ok(error instanceof RangeError, String(error));
      }
    });
    fc.assert(property, { numRuns: 5000, endOnFailure: true });
  });

  test('the MTU of an interface is told, and one that is not there is an error', () => {
    using socket = Socket.datagram('ipv4');
    assert.ok(interfaceMtu(socket, 'lo') >= 1280);
    assert.throws(() => interfaceMtu(socket, 'nosuch0'), { code: 'ENODEV' });
    assert.throws(() => interfaceMtu(socket, 'a-name-that-is-too-long'));
  });

  test('nothing to receive is none, and a closed socket is refused', () => {
    using stack = new DisposableStack();
    const [sender, receiver] = stations(stack);
    assert.deepEqual(receiver.look(), []);
    receiver.socket.close();
    assert.throws(() => receiver.look());
    sender.socket.close();
    sender.add(pattern(4, 0), 0, 16);
    assert.throws(() => sender.sends.send(sender.socket));
  });

  for (const host of ['127.0.0.1', '::1']) {
    test(`${host}: many datagrams arrive in order, from whom they came`, () => {
      using stack = new DisposableStack();
      const [sender, receiver] = stations(stack, host);
      const sent = Array.from({ length: 150 }, (_, index) => pattern(1 + index * 3, index));
      for (const bytes of sent) sender.add(bytes);
      assert.equal(sender.sends.isEmpty, false);
      assert.equal(sender.sends.send(sender.socket), true);
      assert.equal(sender.sends.isEmpty, true);
      const came = receiver.receiveAll(sent.reduce((sum, { length }) => sum + length, 0));
      assert.deepEqual(
        came.map(({ bytes }) => bytes),
        sent,
      );
      for (const { from, isCut, segmentBytes } of came) {
        assert.deepEqual(from, sender.socket.localAddress);
        assert.equal(isCut || segmentBytes !== 0, false);
      }
    });

    test(`${host}: the kernel cuts one into segments, the last one shorter, for those that want them apart`, () => {
      using stack = new DisposableStack();
      const [sender, receiver] = stations(stack, host);
      const bytes = pattern(10_000, 1);
      sender.add(bytes, 1056);
      sender.sends.send(sender.socket);
      const came = receiver.receiveAll(bytes.length);
      assert.deepEqual(
        came.map((one) => one.bytes.length),
        [...Array.from({ length: 9 }, () => 1056), 10_000 - 9 * 1056],
      );
      assert.deepEqual(new Uint8Array(Buffer.concat(came.map((one) => one.bytes))), bytes);
    });

    test(`${host}: and leaves them together for those that do not`, () => {
      using stack = new DisposableStack();
      const [sender, receiver] = stations(stack, host);
      receiver.socket.setOption('udpGro', 1);
      const bytes = pattern(10_000, 2);
      sender.add(bytes, 1056);
      sender.add(pattern(5, 3));
      sender.sends.send(sender.socket);
      const came = receiver.receiveAll(bytes.length + 5);
      for (const { bytes: part, segmentBytes } of came) assert.ok(segmentBytes === 0 || part.length > segmentBytes);
      assert.equal(came[0]?.segmentBytes, 1056);
      assert.equal(came.at(-1)?.segmentBytes, 0);
      assert.deepEqual(
        new Uint8Array(Buffer.concat(came.map((one) => one.bytes))),
        new Uint8Array([...bytes, ...pattern(5, 3)]),
      );
    });
  }

  test('one that is longer than its place is cut, and says so', () => {
    using stack = new DisposableStack();
    const [sender, receiver] = stations(stack);
    sender.add(pattern(PLACE_BYTES + 1, 0));
    sender.add(pattern(PLACE_BYTES, 1));
    sender.sends.send(sender.socket);
    const came = receiver.receiveAll(2 * PLACE_BYTES);
    assert.deepEqual(
      came.map(({ isCut }) => isCut),
      [true, false],
    );
  });

  test('one that cannot be sent does not hold up those before it, and after a skip not those behind it', () => {
    using stack = new DisposableStack();
    const [sender, receiver] = stations(stack);
    sender.add(pattern(3, 0));
    sender.add(pattern(70_000, 1));
    sender.add(pattern(4, 2));
    assert.throws(() => sender.sends.send(sender.socket), { code: 'EMSGSIZE' });
    assert.equal(sender.sends.isEmpty, false);
    sender.sends.skip();
    assert.equal(sender.sends.send(sender.socket), true);
    assert.deepEqual(
      receiver.receiveAll(7).map(({ bytes }) => bytes.length),
      [3, 4],
    );
    // With nothing left there is nothing to skip.
    sender.sends.skip();
    assert.equal(sender.sends.send(sender.socket), true);
  });

  test('a full queue stops the list, which goes on where it was', () => {
    using stack = new DisposableStack();
    // Unix datagrams, because the loopback would rather lose UDP than say that it is full.
    const name = `\0millrace-${randomUUID()}`;
    const sender = stack.use(new Station({ family: 'unix', path: `${name}-from` }));
    const receiver = stack.use(new Station({ family: 'unix', path: name }));
    sender.aimAt(receiver);
    const addressBytes = 2 + name.length;
    const sent = Array.from({ length: 200 }, (_, index) => pattern(8, index));
    for (const bytes of sent) sender.add(bytes, 0, addressBytes);
    const came: Came[] = [];
    let stops = 0;
    while (!sender.sends.send(sender.socket)) {
      stops++;
      came.push(...receiver.look());
    }
    while (came.length < sent.length) came.push(...receiver.receive());
    assert.ok(stops > 1);
    assert.deepEqual(
      came.map(({ bytes }) => bytes),
      sent,
    );
  });
});
