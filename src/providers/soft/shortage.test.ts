// A process without descriptors: whoever dials its devices waits, and nothing ends.
// Runs in a process of its own: it limits the descriptors of its process.

import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { portOf } from '../../../test/conformance/connect.ts';
import { Rig } from '../../../test/conformance/rig.ts';
import { assertNoDescriptors, noDescriptors } from '../../native/fixtures/no-descriptors.ts';
import { type Address, ip, Socket } from '../../native/index.ts';
import { reconnect } from './fixtures/run-program.ts';
import { linkedWires, openSoftPair, type SoftPair } from './fixtures/soft-pair.ts';

/** Somebody who connects to both devices when called, and says nothing. */
function unknownPeers(wire: (typeof linkedWires)[number], pair: SoftPair): { connect(): void } & Disposable {
  const addresses: Address[] =
    wire === 'shm'
      ? readdirSync(pair.runtimeDir).map((name) => ({ family: 'unix', path: join(pair.runtimeDir, name) }))
      : [pair.left, pair.right].map((device) => ip('127.0.0.1', portOf(device).lid));
  const sockets = addresses.map(() => (wire === 'shm' ? Socket.messages() : Socket.stream('ipv4')));
  return {
    connect() {
      for (const [index, socket] of sockets.entries()) socket.connect(addresses[index]);
    },
    [Symbol.dispose]() {
      for (const socket of sockets) socket.close();
    },
  };
}

async function exchange({ left, right }: Rig, text: string): Promise<void> {
  right.receive(1, 0, 100);
  left.put(0, text);
  left.post((batch) => batch.send(2).sge(...left.at(0, text.length)));
  assert.deepEqual(await left.sentStatuses(), ['2:SUCCESS']);
  assert.deepEqual(await right.receivedStatuses(), ['1:SUCCESS']);
  assert.equal(right.text(0, text.length), text);
}

describe('without descriptors', { concurrency: false }, () => {
  for (const wire of linkedWires) {
    test(`devices of ${wire} accept nobody, do not spin, and go on when there are some again`, async () => {
      await using pair = openSoftPair(wire);
      using rig = Rig.build(pair);
      await exchange(rig, 'before');
      using unknown = unknownPeers(wire, pair);
      {
        await using _ = await noDescriptors();
        assertNoDescriptors();
        unknown.connect();
        const before = process.cpuUsage();
        await sleep(500);
        const { user, system } = process.cpuUsage(before);
        assert.ok(user + system < 250_000, `${(user + system) / 1000} ms of processor time in 500 ms`);
      }
      reconnect(rig);
      await exchange(rig, 'after');
    });
  }
});
