import assert from 'node:assert/strict';
import { duplexPair } from 'node:stream';
import { describe, test } from 'node:test';
import { readLine, writeLine } from '../json-lines/line.ts';
import { paperDevice } from './fixtures/paper-device.ts';
import {
  access,
  connectQp,
  decodeQpEndpoint,
  encodeQpEndpoint,
  localQpEndpoint,
  modifyToRts,
  type Qp,
} from './index.ts';

function paperQp(): Qp {
  const device = paperDevice();
  return device.createPd().createQp({ sendCq: device.createCq() });
}

const everything = access.localWrite | access.remoteWrite | access.remoteRead;

describe('connecting a QP', () => {
  test('a QP that is on its way already, or of a kind that is not connected, is refused', async () => {
    const [here] = duplexPair();
    const qp = paperQp();
    qp.init();
    modifyToRts(qp, localQpEndpoint(qp), localQpEndpoint(paperQp()));
    await assert.rejects(connectQp(here, qp), { code: 'MILLRACE_ERR_USAGE', message: /it is in RTS already/ });
    const device = paperDevice();
    const datagrams = device.createPd().createQp({ type: 'UD', sendCq: device.createCq() });
    await assert.rejects(connectQp(here, datagrams), { code: 'MILLRACE_ERR_USAGE', message: /only RC/ });
  });

  test('a region that nobody could reach is refused', async () => {
    const qp = paperQp();
    const regions = { ring: qp.pd.allocate({ sizeBytes: 64 }) };
    await assert.rejects(connectQp(duplexPair()[0], qp, { regions }), { message: /ring allows no remote access/ });
  });

  test('a peer that goes away, breaks the protocol, keeps its regions to itself or never gets ready is an error', async () => {
    const cases: [string, (there: ReturnType<typeof duplexPair>[0]) => void, RegExp, string?][] = [
      ['goes', (there) => void there.end(), /closed the connection/],
      [
        'nonsense',
        (there) => void there.write('{"millrace":"qp","version":2}\n'),
        /qp message: qpNumber is missing/,
        'PROTOCOL',
      ],
      ['no ring', (there) => writeLine(there, encoded()), /does not offer the region ring/],
    ];
    for (const [, misbehave, message, code = 'FAILED'] of cases) {
      const [here, there] = duplexPair();
      const connecting = connectQp(here, paperQp(), { expect: ['ring'] });
      misbehave(there);
      await assert.rejects(connecting, { code: `MILLRACE_ERR_${code}`, message });
    }
    const [here, there] = duplexPair();
    const connecting = connectQp(here, paperQp());
    writeLine(there, encoded());
    writeLine(there, { kind: 'ready', qpNumber: 'perhaps' });
    await assert.rejects(connecting, { message: /qpNumber is "perhaps"/ });
  });

  test('an abort ends the wait', async () => {
    const controller = new AbortController();
    const connecting = connectQp(duplexPair()[0], paperQp(), { signal: controller.signal });
    controller.abort(new Error('too slow'));
    await assert.rejects(connecting, /too slow/);
  });

  test('both sides end in RTS, know each other’s regions, and what follows is still in the socket', async () => {
    const [here, there] = duplexPair();
    const [one, other] = [paperQp(), paperQp()];
    const ring = one.pd.allocate({ sizeBytes: 128, access: everything });
    const shared = other.pd.allocate({ sizeBytes: 64, access: everything });
    // Receives can be posted before anybody sends.
    other.init();
    const first = connectQp(here, one, { regions: { ring } }).then((connected) => {
      writeLine(here, 'first words');
      return connected;
    });
    const regions = { all: shared.remote() };
    const [atOne, atOther] = await Promise.all([first, connectQp(there, other, { regions, expect: ['ring'] })]);
    assert.deepEqual([one.state, other.state], ['RTS', 'RTS']);
    assert.deepEqual(atOne.remote.qpNumber, other.number);
    // A region is given by a key for this peer alone, plain data as it is.
    assert.deepEqual(atOther.regions.ring, { address: ring.address, rkey: ring.grant(one), sizeBytes: 128 });
    assert.deepEqual(atOne.regions.all, { address: shared.address, rkey: shared.rkey, sizeBytes: 64 });
    assert.equal(await readLine(there), 'first words');
    assert.equal(here.listenerCount('error') + here.listenerCount('readable'), 0);
  });

  test('nobody is ready before the other side is in RTS, too', async () => {
    const [here, there] = duplexPair();
    const [one, other] = [paperQp(), paperQp()];
    let isConnected = false;
    const connecting = connectQp(here, one).then(() => {
      isConnected = true;
    });
    const remote = decodeQpEndpoint(await readLine(there));
    other.init();
    const local = localQpEndpoint(other);
    writeLine(there, encodeQpEndpoint(local));
    assert.deepEqual(await readLine(there), { kind: 'ready', qpNumber: one.number });
    assert.equal(isConnected, false);
    modifyToRts(other, local, remote);
    writeLine(there, { kind: 'ready', qpNumber: other.number });
    await connecting;
  });
});

function encoded(): object {
  return encodeQpEndpoint(localQpEndpoint(paperQp()));
}
