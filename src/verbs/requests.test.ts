import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { type PaperQp, paperDevice } from './fixtures/paper-device.ts';
import { type Cq, type Device, localQpEndpoint, type Mr, modifyToRts, type Qp, Requests, sendRow } from './index.ts';

interface Fixture {
  readonly device: Device;
  readonly cq: Cq;
  readonly qp: Qp;
  readonly paper: PaperQp;
  readonly mr: Mr;
}

function connected(device: Device, cq: Cq, depth = 4): { qp: Qp; paper: PaperQp } {
  const pd = device.createPd();
  const qp = pd.createQp({ sendCq: cq, sendRequests: depth, receiveRequests: depth });
  qp.init();
  modifyToRts(qp, localQpEndpoint(qp), localQpEndpoint(qp));
  return { qp, paper: qp.provided as PaperQp };
}

function fixture(): Fixture {
  const device = paperDevice();
  const cq = device.createCq({ entries: 16, channel: device.createChannel() });
  const { qp, paper } = connected(device, cq);
  return { device, cq, qp, paper, mr: qp.pd.allocate({ sizeBytes: 64 }) };
}

const remote = { address: 4096, rkey: 77, sizeBytes: 64 };

describe('requests as promises', () => {
  test('a CQ without a channel, one that is too small, and a closed QP are refused', () => {
    const device = paperDevice();
    const { qp } = connected(device, device.createCq({ entries: 16 }));
    assert.throws(() => new Requests(qp), { code: 'MILLRACE_ERR_USAGE', message: /the CQ has no channel/ });
    const small = device.createCq({ entries: 7, channel: device.createChannel() });
    assert.throws(() => new Requests(connected(device, small).qp), {
      code: 'MILLRACE_ERR_USAGE',
      message: /wait for 8 requests: the CQ has 7 entries/,
    });
    qp.close();
    assert.throws(() => new Requests(qp), { code: 'MILLRACE_ERR_USAGE' });
  });

  test('the places that QPs need of a shared CQ add up, and closing gives them back', () => {
    const { device, cq, qp } = fixture();
    const first = new Requests(qp);
    const second = new Requests(connected(device, cq).qp);
    assert.throws(() => new Requests(connected(device, cq).qp), /wait for 20 requests|wait for 24 requests/);
    first.close();
    second.close();
    new Requests(qp).close();
  });

  test('ranges outside of either region are refused before anything is posted', async () => {
    const { qp, paper, mr } = fixture();
    using requests = new Requests(qp);
    const wrong = [
      () => requests.send(mr, 0, 65),
      () => requests.send(mr, -1, 1),
      () => requests.receive(mr, 60.5, 1),
      () => requests.write(mr, 0, 64, remote, 1),
      () => requests.read(mr, 0, Number.NaN, remote, 0),
      () => requests.fetchAdd(remote, 57, 1n),
    ];
    for (const call of wrong) await assert.rejects(call(), { code: 'MILLRACE_ERR_USAGE' });
    assert.equal(paper.sends.length + paper.receives.length, 0);
    mr.close();
    await assert.rejects(requests.send(mr, 0, 1), /the region is closed/);
  });

  test('what cannot be posted at all rejects alone', async () => {
    const { qp, mr, paper } = fixture();
    using requests = new Requests(qp);
    qp.modify('RESET');
    await assert.rejects(requests.send(mr, 0, 1), { code: 'MILLRACE_ERR_USAGE', message: /it is in RESET/ });
    paper.state = 'RTS';
    const sent = requests.send(mr, 0, 1);
    paper.finishSend();
    await sent;
  });

  test('each promise gets its own completion, out of order between the queues', async () => {
    const { qp, mr, paper } = fixture();
    using requests = new Requests(qp);
    const received = requests.receive(mr, 0, 64);
    const written = requests.write(mr, 8, 16, remote, 32, { imm: 5 });
    assert.equal(paper.lastRow[sendRow.opcode], 3);
    assert.equal(paper.lastRow[sendRow.imm], 5);
    assert.equal(paper.lastRow[sendRow.remoteAddress], 4096 + 32);
    assert.equal(paper.lastRow[sendRow.rkey], 77);
    assert.deepEqual(Array.from(paper.lastRow.subarray(sendRow.sge, sendRow.sge + 4)), [
      mr.address + 8,
      0,
      16,
      mr.lkey,
    ]);
    paper.finishSend();
    await written;
    setImmediate(() => paper.finishReceive({ byteLength: 12, imm: 9 }));
    assert.deepEqual(await received, { byteLength: 12, imm: 9 });
    const plain = requests.receive(mr, 0, 0);
    paper.finishReceive({ byteLength: 0 });
    assert.deepEqual(await plain, { byteLength: 0 });
  });

  test('atomics take and give all 64 bits', async () => {
    const { qp, paper } = fixture();
    using requests = new Requests(qp);
    const added = requests.fetchAdd(remote, 8, -2n);
    assert.deepEqual(
      Array.from(paper.lastRow.subarray(sendRow.compareAdd, sendRow.compareAdd + 2)),
      [0xffff_fffe, 0xffff_ffff],
    );
    paper.finishSend({ byteLength: 8 });
    assert.equal(await added, 0n);
    const swapped = requests.compareSwap(remote, 8, 2n ** 40n, 2n ** 63n + 1n);
    assert.deepEqual(Array.from(paper.lastRow.subarray(sendRow.compareAdd, sendRow.swap + 2)), [0, 256, 1, 2 ** 31]);
    paper.finishSend({ byteLength: 8 });
    assert.equal(await swapped, 0n);
  });

  test('requests to a full queue wait, in order', async () => {
    const { qp, mr, paper } = fixture();
    using requests = new Requests(qp);
    const done: number[] = [];
    const all = Array.from({ length: 10 }, (_, index) => requests.send(mr, 0, 1).then(() => done.push(index)));
    assert.equal(paper.sends.length, 4);
    for (let index = 0; index < 10; index++) {
      paper.finishSend();
      await all[index];
    }
    assert.deepEqual(done, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });

  test('a request that fails rejects with operation, peer and cause', async () => {
    const { qp, mr, paper } = fixture();
    using requests = new Requests(qp);
    const failing = requests.send(mr, 0, 1);
    const flushed = requests.send(mr, 0, 1);
    paper.finishSend({ status: 'RNR_RETRY_EXC_ERR' });
    paper.finishSend({ status: 'WR_FLUSH_ERR' });
    await assert.rejects(failing, { name: 'CompletionError', code: 'RNR_RETRY_EXC_ERR', message: /QP 1 to nobody/ });
    await assert.rejects(flushed, { code: 'WR_FLUSH_ERR' });
  });

  test('closing rejects what is posted and what waits, and so does closing the QP or the CQ', async () => {
    for (const what of ['requests', 'qp', 'cq'] as const) {
      const { qp, cq, mr } = fixture();
      const requests = new Requests(qp);
      const all = Array.from({ length: 6 }, () => requests.send(mr, 0, 1));
      const received = requests.receive(mr, 0, 1);
      ({ requests, qp, cq })[what].close();
      for (const promise of [...all, received]) await assert.rejects(promise, { code: 'MILLRACE_ERR_CLOSED' });
      await assert.rejects(requests.send(mr, 0, 1), { code: 'MILLRACE_ERR_CLOSED' });
      requests.close();
    }
  });

  test('two QPs on one CQ share a dispatcher and do not take each other’s completions', async () => {
    const { device, cq, qp, mr, paper } = fixture();
    const other = connected(device, cq);
    using requests = new Requests(qp);
    using others = new Requests(other.qp);
    const first = requests.send(mr, 0, 1);
    const second = others.receive(mr, 0, 1);
    other.paper.finishReceive({ byteLength: 3 });
    paper.finishSend();
    await first;
    assert.deepEqual(await second, { byteLength: 3 });
  });

  test('nothing keeps the process alive once no request waits', async () => {
    const code = `
      import { paperDevice } from '${new URL('./fixtures/paper-device.ts', import.meta.url).href}';
      import { modifyToRts, localQpEndpoint, Requests } from '${new URL('./index.ts', import.meta.url).href}';
      const device = paperDevice();
      const cq = device.createCq({ channel: device.createChannel() });
      const qp = device.createPd().createQp({ sendCq: cq });
      qp.init();
      modifyToRts(qp, localQpEndpoint(qp), localQpEndpoint(qp));
      const requests = new Requests(qp);
      const mr = qp.pd.allocate({ sizeBytes: 64 });
      requests.receive(mr, 0, 64).catch((error) => console.log(error.code));
      setImmediate(() => requests.close());
      cq.provided.onArm = () => cq.provided.push(77, qp.number, {});
      for await (const { wrId } of cq) break;`;
    const args = ['--input-type=module', '-e', code];
    const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 20_000 });
    assert.equal(stdout, 'MILLRACE_ERR_CLOSED\n');
  });
});
