// What the conformance suite does not ask of an RDMA device: GIDs, errors with hints, UD, events,
// and sudden ends.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { UsageError } from '../../../src/errors.ts';
import { ibverbs, ibvKinds } from '../../../src/native/index.ts';
import { ibverbsProvider } from '../../../src/providers/ibverbs/index.ts';
import { access, CompletionBatch, Device, GRH_BYTES, ReceiveBatch, SendBatch } from '../../../src/verbs/index.ts';
import { connectPair } from '../../conformance/connect.ts';
import { Rig } from '../../conformance/rig.ts';
import { drain, reap, until } from '../../conformance/wait.ts';

const NAME = 'rxe0';
const NETDEV = 'dum0';
/** Programs beside this one are compiled like it. */
const extension = import.meta.url.slice(import.meta.url.lastIndexOf('.'));

function open(): Device {
  return new Device(ibverbsProvider.openDevice(NAME));
}

function rigOn(left: Device, right: Device): Rig {
  return Rig.build({ left, right });
}

describe('an RDMA device', () => {
  test('is listed with its wire, and opened by name', () => {
    const [info] = ibverbsProvider.listDevices();
    assert.deepEqual([info?.name, info?.provider, info?.transport], [NAME, 'ibverbs', 'RoCEv2']);
    assert.match(info?.guid ?? '', /^[0-9a-f]{4}(:[0-9a-f]{4}){3}$/);
    using device = open();
    assert.equal(device.attributes.atomics, 'device');
    assert.ok(device.attributes.maxInlineBytes >= 64);
    assert.throws(() => ibverbsProvider.openDevice('rxe9'), { code: 'ENODEV', message: /open rxe9: no such device/ });
  });

  test('is found at its IPv4 address, and chooses the GID that fits the peer', async () => {
    using device = open();
    const { gids, gidTypes, gidIndex = 0 } = device.port();
    assert.equal(gids[gidIndex], '::ffff:10.99.0.1');
    assert.equal(gidTypes?.[gidIndex], 'RoCE v2');
    // Without a gidIndex the path to each of the addresses must come from one of its family.
    for (const peer of ['::ffff:10.99.0.1', 'fd99::1']) {
      const rig = Rig.build({ left: device, right: device }, { isConnected: false });
      const attributes = { path: { gid: peer } };
      connectPair(rig.left.qp, rig.right.qp, { attributes });
      rig.right.receive(1, 0, 8);
      rig.left.post((batch) => batch.send(2));
      assert.deepEqual(await rig.left.sentStatuses(), ['2:SUCCESS'], peer);
      rig[Symbol.dispose]();
    }
  });

  test('a step that cannot be taken says what to look at', () => {
    using device = open();
    const rig = Rig.build({ left: device, right: device }, { isConnected: false });
    const { qp } = rig.left;
    const path = { gid: '::ffff:10.99.0.1' };
    const step = { path, pathMtu: 1024, destQpNumber: 5, rqPsn: 0, maxDestRdAtomic: 1, minRnrTimer: 1 } as const;
    qp.init();
    assert.throws(() => qp.modify('RTR', { ...step, path: { ...path, gidIndex: 200 } }), {
      code: 'ENODATA',
      message: /^ibv_modify_qp: ENODATA \(QP \d+ from INIT to RTR: .+; GID index 200 of this port is empty; see/,
    });
    assert.equal(qp.state, 'INIT');
    execFileSync('ip', ['link', 'set', NETDEV, 'mtu', '1500']);
    try {
      assert.throws(() => qp.modify('RTR', { ...step, pathMtu: 4096 }), {
        code: 'MILLRACE_ERR_USAGE',
        message: /pathMtu is 4096, and the active MTU of port 1 is 1024/,
      });
    } finally {
      execFileSync('ip', ['link', 'set', NETDEV, 'mtu', '4300']);
    }
    qp.modify('RTR', step);
    rig[Symbol.dispose]();
  });

  test('memory beyond what the user may lock is refused with the limit', () => {
    const script = new URL(`unprivileged-register${extension}`, import.meta.url).pathname;
    const nobody = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'];
    const words = [...nobody, process.execPath, '--no-warnings', '--liftoff-only'];
    const said = execFileSync('sh', ['-c', `ulimit -l 1024; exec ${words.join(' ')} ${script}`], {
      encoding: 'utf8',
    });
    assert.match(said, /^ibv_reg_mr: ENOMEM \(register 64 MiB: .*locked-memory limit is 1 MiB; raise LimitMEMLOCK/);
  });

  test('huge pages can be registered', async () => {
    writeFileSync('/proc/sys/vm/nr_hugepages', '4');
    using device = open();
    using rig = rigOn(device, device);
    const { left, right } = rig;
    const flags = access.localWrite | access.remoteWrite;
    const huge = right.pd.allocate({ sizeBytes: 2 << 20, hugePages: true, access: flags });
    left.put(0, 'huge');
    left.post((batch) => batch.write(1, huge.address + (1 << 20), huge.rkey).sge(...left.at(0, 4)));
    assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
    assert.equal(Buffer.from(huge.bytes.subarray(1 << 20, (1 << 20) + 4)).toString(), 'huge');
  });

  test('a batch longer than one chain of requests is posted whole', async () => {
    using device = open();
    using rig = Rig.build({ left: device, right: device }, { left: { sendRequests: 512 } });
    const { left, right } = rig;
    for (let index = 0; index < 400; index++) left.bytes(index, 1)[0] = index & 0xff;
    left.post((batch) => {
      for (let index = 0; index < 400; index++) {
        const flag = index === 399 ? 1 : 0;
        batch.write(index, right.mr.address + index, right.mr.rkey, flag).sge(...left.at(index, 1));
      }
    });
    assert.deepEqual(await left.sentStatuses(), ['399:SUCCESS']);
    assert.equal(Buffer.compare(left.bytes(0, 400), right.bytes(0, 400)), 0);
  });

  test('inline data that is in no memory of this thread is refused, not read', () => {
    using device = open();
    using rig = rigOn(device, device);
    const { left } = rig;
    for (const address of [8, left.mr.address + left.mr.sizeBytes - 4, 2 ** 52]) {
      const post = (): unknown => left.tryPost((batch) => batch.send(1, 8).sge(0, address, 8));
      assert.throws(post, { code: 'MILLRACE_ERR_USAGE', message: /in no memory of this thread/ }, String(address));
    }
  });

  test('rows of junk are refused or fail, and harm nobody', async () => {
    using device = open();
    using rig = rigOn(device, device);
    const { left, right } = rig;
    using sends = new SendBatch({ capacity: 8, maxSge: 4 });
    using receives = new ReceiveBatch({ capacity: 8, maxSge: 4 });
    const known = [left.mr.lkey, right.mr.rkey, left.mr.address % 2 ** 32, Math.floor(left.mr.address / 2 ** 32)];
    let refused = 0;
    for (let round = 0; round < 150; round++) {
      // Words that are small, known or anything.
      const junk = (): number => {
        const kind = randomInt(3);
        return kind === 0 ? randomInt(9) : kind === 1 ? (known[randomInt(known.length)] ?? 0) : randomInt(2 ** 32);
      };
      for (const batch of [sends, receives]) {
        batch.clear();
        const rows = randomInt(1, 9);
        for (let row = 0; row < rows; row++) {
          if (batch === sends) sends.send(row);
          else receives.receive(row);
        }
        for (let word = 0; word < rows * batch.rowWords; word++) if (randomInt(4) === 0) batch.words[word] = junk();
      }
      try {
        left.qp.postReceive(receives);
        left.qp.postSend(sends);
      } catch (error) {
        assert.ok(error instanceof UsageError, String(error));
        refused++;
      }
      reap(left.sendCq);
      reap(left.receiveCq);
    }
    assert.ok(refused > 10, `${refused} refused`);
    const [from, to] = [left.createQp(), right.createQp()];
    rig.connect(from, to);
    reap(left.sendCq, 1024);
    left.post((batch) => batch.write(77, right.mr.address, right.mr.rkey).sge(...left.at(0, 8)), from);
    await until('the write', () => reap(left.sendCq).some(({ wrId, status }) => wrId === 77 && status === 'SUCCESS'));
  });

  test('memory that is closed under its region harms nobody', async () => {
    using device = open();
    using rig = rigOn(device, device);
    const { left, right } = rig;
    const region = right.pd.allocate({ sizeBytes: 4096, access: right.mr.access });
    region.memory.close();
    left.post((batch) => batch.write(1, region.address, region.rkey).sge(...left.at(0, 8)));
    assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
    assert.throws(() => region.grant(right.qp), { code: 'MILLRACE_ERR_USAGE' });
  });
});

describe('datagrams', () => {
  test('go where their address handle says, with a header in front and the sender’s number', async () => {
    using device = open();
    const { gids, gidIndex = 0 } = device.port();
    const [pd, cq] = [device.createPd(), device.createCq()];
    const [one, two] = [pd.createQp({ type: 'UD', sendCq: cq }), pd.createQp({ type: 'UD', sendCq: cq })];
    for (const qp of [one, two]) {
      qp.modify('INIT', { portNumber: 1, qkey: 0x1234 });
      qp.modify('RTR');
      qp.modify('RTS', { sqPsn: 7 });
    }
    const mr = pd.allocate({ sizeBytes: 4096 });
    using receives = new ReceiveBatch({ capacity: 1 });
    using sends = new SendBatch({ capacity: 1 });
    using completions = new CompletionBatch(4);
    const ah = pd.createAh({ gid: gids[gidIndex] ?? '::' });
    assert.throws(() => one.postSend(sends.send(1).sge(mr.lkey, mr.address, 5).to(12_345, 1, 1)), {
      message: /it has no address handle/,
    });
    sends.clear();
    two.postReceive(receives.receive(1).sge(mr.lkey, mr.address + 1024, 256));
    new TextEncoder().encodeInto('datagram', mr.bytes);
    one.postSend(sends.sendWithImm(2, 77).sge(mr.lkey, mr.address, 8).to(ah.handle, two.number, 0x1234));
    let sourceQp = 0;
    let byteLength = 0;
    let imm = 0;
    let done = 0;
    await until('both completions', () => {
      const count = cq.poll(completions);
      for (let row = 0; row < count; row++) {
        assert.equal(completions.status(row), 0);
        if (completions.wrId(row) !== 1) continue;
        sourceQp = completions.sourceQp(row);
        byteLength = completions.byteLength(row);
        imm = completions.imm(row);
      }
      done += count;
      return done === 2;
    });
    assert.deepEqual([sourceQp, byteLength, imm], [one.number, GRH_BYTES + 8, 77]);
    const start = 1024 + GRH_BYTES;
    assert.equal(Buffer.from(mr.bytes.subarray(start, start + 8)).toString(), 'datagram');
  });
});

describe('handles', () => {
  test('of what is closed are refused, and parents are not closed before their children', () => {
    const opened = ibverbs.ibvOpen(NAME);
    assert.ok(typeof opened === 'object');
    const [context] = opened;
    const pd = ibverbs.ibvAllocPd(context);
    const cq = ibverbs.ibvCreateCq(context, 8, 0);
    const made = ibverbs.ibvCreateQp(pd, 2, cq, cq, 0, 4, 4, 1, 0, 0);
    assert.ok(typeof made === 'object');
    const [qp] = made;
    const EBUSY = -16;
    for (const [handle, kind] of [
      [context, ibvKinds.context],
      [pd, ibvKinds.pd],
      [cq, ibvKinds.cq],
    ] as const) {
      assert.equal(ibverbs.ibvClose(handle, kind), EBUSY);
    }
    assert.throws(() => ibverbs.ibvClose(qp, ibvKinds.pd), RangeError);
    assert.throws(() => ibverbs.ibvPoll(qp, 0, 0), RangeError);
    assert.equal(ibverbs.ibvClose(qp, ibvKinds.qp), 0);
    assert.throws(() => ibverbs.ibvClose(qp, ibvKinds.qp), RangeError);
    assert.throws(() => ibverbs.ibvQueryState(qp), RangeError);
    // The place is used again, by another number.
    const again = ibverbs.ibvCreateQp(pd, 2, cq, cq, 0, 4, 4, 1, 0, 0);
    assert.ok(typeof again === 'object' && again[0] !== qp);
    assert.equal(ibverbs.ibvClose(again[0], ibvKinds.qp), 0);
    assert.equal(ibverbs.ibvClose(cq, ibvKinds.cq), 0);
    assert.equal(ibverbs.ibvClose(pd, ibvKinds.pd), 0);
    assert.equal(ibverbs.ibvClose(context, ibvKinds.context), 0);
  });
});

describe('sudden ends', () => {
  test('a worker that is terminated leaves nothing open', async () => {
    const resources = (): string => execFileSync('rdma', ['resource', 'show', NAME], { encoding: 'utf8' });
    const before = resources();
    for (let round = 0; round < 2; round++) {
      const worker = new Worker(new URL(`open-in-worker${extension}`, import.meta.url));
      assert.deepEqual(await once(worker, 'message'), ['open']);
      assert.notEqual(resources(), before);
      await worker.terminate();
      assert.equal(resources(), before);
    }
    using device = open();
    assert.equal(device.port().state, 'ACTIVE');
  });

  test('a port that goes down and comes up again is told', async () => {
    using device = open();
    const states: string[] = [];
    device.events.on('portChange', ({ portNumber, state }) => states.push(`${portNumber} ${state}`));
    execFileSync('ip', ['link', 'set', NETDEV, 'down']);
    await until('DOWN', () => states.includes('1 DOWN'));
    execFileSync('ip', ['link', 'set', NETDEV, 'up']);
    await until('ACTIVE', () => states.at(-1) === '1 ACTIVE');
    assert.equal(device.port().state, 'ACTIVE');
  });

  test('a CQ that overflows is told', async () => {
    using device = open();
    using rig = rigOn(device, device);
    const { left, right } = rig;
    const cq = device.createCq({ entries: 4 });
    const [from, to] = [left.pd.createQp({ sendCq: cq }), right.createQp()];
    rig.connect(from, to);
    let overrun: unknown;
    device.events.on('cqOverrun', (full) => {
      overrun = full;
    });
    left.post((batch) => {
      for (let wrId = 0; wrId < 32; wrId++) batch.write(wrId, right.mr.address, right.mr.rkey).sge(...left.at(0, 8));
    }, from);
    await until('the event', () => overrun !== undefined);
    assert.equal(overrun, cq);
    assert.ok((await drain(cq, 4)).every(({ status }) => status === 'SUCCESS'));
  });
});
