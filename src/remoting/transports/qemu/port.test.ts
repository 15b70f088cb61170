// Runs in a process of its own: it counts the descriptors of its process.

import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { eventually } from '../../../../workbench/worlds/eventually.ts';
import { SharedMemory, Socket } from '../../../native/index.ts';
import { defaultLimits } from '../../backend/policy.ts';
import { GuestThread } from '../../backend/threads/guest-thread.ts';
import { CALL_AREA_BYTES } from '../../protocol/call-protocol.ts';
import { QemuHost, type QemuHostSpec } from './host-transport.ts';
import { QemuMachine } from './machine.ts';
import { encodeFrame, type FrameKind } from './port-frames.ts';
import { portName, portOf, sliceOf } from './slices.ts';
import { QemuWiring } from './wiring.ts';

const SIZE = 1 << 20;

/** QEMU's ends of a machine, and whom it was asked to serve. */
class Fixture {
  readonly specs: QemuHostSpec[] = [];
  readonly #wiring = new QemuWiring({ sizeBytes: SIZE, ports: 2 });
  readonly machine = new QemuMachine({
    name: 'a',
    ends: this.#wiring.ends,
    serve: (spec) => void this.specs.push(spec),
  });
  readonly ports = this.#wiring.sharing.ports.map(({ fd }) => Socket.duplicateOf(fd));
  readonly monitor = Socket.duplicateOf(this.#wiring.sharing.monitorFd);
  readonly #scratch = SharedMemory.create({ sizeBytes: 4096 });

  constructor() {
    this.#wiring.close();
  }

  say(port: number, bytes: Uint8Array): void {
    new Uint8Array(this.#scratch.buffer).set(bytes);
    this.ports[port]?.send(this.#scratch, 0, bytes.length);
  }

  /** What has come, as text. */
  heard(port: number): string {
    const count = this.ports[port]?.receive(this.#scratch, 0, 4096) ?? 0;
    return count > 0 ? Buffer.from(this.#scratch.buffer, 0, count).toString('latin1') : '';
  }

  tell(line: object): void {
    const bytes = Buffer.from(`${JSON.stringify(line)}\n`);
    new Uint8Array(this.#scratch.buffer).set(bytes);
    this.monitor.send(this.#scratch, 0, bytes.length);
  }

  /** The next program that is served. */
  async served(): Promise<QemuHost> {
    await eventually('a program has come', () => this.specs.length > 0);
    const spec = this.specs.shift();
    assert.ok(spec);
    return QemuHost.open(spec);
  }

  async close(): Promise<void> {
    for (const socket of [...this.ports, this.monitor]) socket.close();
    await this.machine.close();
    this.#scratch.close();
  }
}

const frame = (kind: FrameKind, nonce: number): string => Buffer.from(encodeFrame(kind, nonce)).toString('latin1');

describe('a virtual machine and its ports', { timeout: 20_000 }, () => {
  let fixture: Fixture;
  beforeEach(() => {
    fixture = new Fixture();
  });
  afterEach(() => fixture.close());

  test('sizes and numbers that do not fit are refused, and other names of ports are not taken for its own', () => {
    for (const [ports, sizeBytes] of [
      [0, SIZE],
      [31, SIZE],
      [16, SIZE],
    ] as const) {
      assert.throws(() => new QemuWiring({ sizeBytes, ports }), { code: 'MILLRACE_ERR_USAGE' });
    }
    for (const name of ['millrace.agent', 'millrace.remoting.2.2', 'millrace.remoting.0', 'x.millrace.remoting.0.1']) {
      assert.equal(portOf(name), undefined);
    }
    assert.deepEqual(portOf(portName(3, 4)), { index: 3, count: 4 });
    assert.deepEqual(sliceOf(SIZE, 1, 3), { offset: 85 * 4096, sizeBytes: 85 * 4096 });
  });

  test('noise serves nobody; a hello does, in the slice of its port, zeroed', async () => {
    fixture.say(1, Buffer.from('AT+GMR\r\nMRG'));
    fixture.say(1, encodeFrame('doorbell', 0));
    fixture.say(1, encodeFrame('hello', 77));
    using host = await fixture.served();
    assert.equal(fixture.heard(1), frame('welcome', 77));
    assert.equal(fixture.machine.programs, 1);
    assert.deepEqual([host.callArea.offset, host.callArea.sizeBytes], [SIZE / 2, CALL_AREA_BYTES]);
    using part = host.allocate(5000);
    assert.deepEqual(part.range, { id: 0, offset: SIZE / 2 + CALL_AREA_BYTES, sizeBytes: 5000 });
    new Uint8Array(part.memory.buffer, part.offset, part.sizeBytes).fill(9);
    part.close();
    part.close();
    using again = host.allocate(8192);
    assert.ok(new Uint8Array(again.memory.buffer, again.offset, 8192).every((byte) => byte === 0));
    assert.throws(() => host.allocate(SIZE / 2), { code: 'ENOMEM' });
    assert.throws(() => host.adopt(part.range), { code: 'MILLRACE_ERR_UNSUPPORTED' });
  });

  test('doorbells are rung both ways, however many', async () => {
    fixture.say(0, encodeFrame('hello', 1));
    using host = await fixture.served();
    fixture.heard(0);
    host.ringDoorbell();
    assert.equal(fixture.heard(0), frame('doorbell', 0));
    for (let i = 0; i < 300; i++) fixture.say(0, encodeFrame('doorbell', 0));
    assert.equal(host.takeDoorbell(), true);
    // The port of a guest that does not read fills, and the host does not wait for it.
    for (let i = 0; i < 100_000; i++) host.ringDoorbell();
    assert.equal(host.takeDoorbell(), true);
  });

  test('a program ends by its end frame, by an event of QEMU, by the hello of another, and with QEMU; the next one is served', async () => {
    const ends: readonly (() => void)[] = [
      () => fixture.say(0, encodeFrame('end', 5)),
      () => fixture.tell({ event: 'VSERPORT_CHANGE', data: { open: false, id: 'port0' } }),
      () => fixture.say(0, encodeFrame('hello', 6)),
      () => fixture.ports[0]?.shutdown(),
    ];
    for (const [index, end] of ends.entries()) {
      fixture.say(0, encodeFrame('hello', 5));
      const host = await fixture.served();
      // Its own hello, repeated because it was not answered soon, does not end it; nor does an
      // event of another port.
      fixture.say(0, encodeFrame('hello', 5));
      fixture.say(0, encodeFrame('end', 4));
      fixture.tell({ event: 'VSERPORT_CHANGE', data: { open: false, id: 'port1' } });
      fixture.tell({ event: 'VSERPORT_CHANGE', data: { open: true, id: 'port0' } });
      assert.equal(host.takeDoorbell(), true, `before end ${index}`);
      end();
      await eventually('the doorbell is taken', () => !host.takeDoorbell());
      assert.equal(fixture.machine.programs, 1, 'its memory is in use until the thread has ended');
      host.close();
      await eventually('no program is left', () => fixture.machine.programs === 0);
      if (index < 3) assert.match(fixture.heard(0), new RegExp(`${frame('end', 5)}$`, 's'));
    }
  });

  test('a program whose thread fails before it serves it is told, leaves no descriptor, and the next one is served', async () => {
    const dying = new URL('../../backend/fixtures/dying-worker.ts', import.meta.url);
    const openFds = (): number => readdirSync('/proc/self/fd').length;
    let before = 0;
    for (let times = 0; times < 3; times++) {
      fixture.say(0, encodeFrame('hello', 8));
      await eventually('a program has come', () => fixture.specs.length > 0);
      const transport = fixture.specs.pop();
      assert.ok(transport);
      const thread = new GuestThread({ runs: dying });
      const { isProtocolError, reason } = await thread.serve({
        id: times + 1,
        transport,
        grants: [],
        limits: defaultLimits,
        hugePages: false,
        wait: 'mixed',
      });
      assert.deepEqual([isProtocolError, /it died at once/.test(reason)], [false, true], reason);
      await eventually('no program is left', () => fixture.machine.programs === 0);
      assert.equal(fixture.heard(0), frame('end', 8));
      assert.equal(thread.isFree, false);
      // The first thread opens descriptors that stay.
      if (times === 0) before = openFds();
    }
    await eventually('the descriptors are closed', () => openFds() <= before);
    fixture.say(0, encodeFrame('hello', 9));
    using _host = await fixture.served();
    assert.equal(fixture.heard(0), frame('welcome', 9));
  });

  test('when a machine ends, its programs end', async () => {
    fixture.say(0, encodeFrame('hello', 5));
    const host = await fixture.served();
    fixture.monitor.shutdown();
    await eventually('the doorbell is taken', () => !host.takeDoorbell());
    host.close();
    await fixture.machine.close();
    assert.equal(fixture.machine.programs, 0);
  });
});
