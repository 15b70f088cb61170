import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ProtocolError } from '../../errors.ts';
import { vortexProtocol } from './protocol.ts';

const offer = {
  kind: 'offer',
  blockBytes: 65_536,
  poolBlocks: 8,
  wire: 'tcp',
  strategy: 'pool',
  token: '0'.repeat(32),
};
const hello = { millrace: 'vortex', version: 2 };
const endpoint = { qpNumber: 7, psn: 3, gid: '::1', lid: 0, mtu: 1024, regions: {} };

describe('messages of a network stream that are refused', () => {
  const wrong: Readonly<Record<string, readonly [value: unknown, reason: RegExp]>> = {
    'no object': [17, /vortex message is 17; expected an object/],
    'no kind': [{}, /its kind is missing/],
    'an unknown kind': [{ kind: 'hurry' }, /its kind is "hurry"/],
    'another protocol': [{ ...hello, millrace: 'control' }, /its protocol is "control"; expected vortex/],
    'another version': [{ ...hello, version: 1, wire: null }, /its version is 1; expected 2/],
    'a hello with more': [{ ...hello, name: 'x' }, /name is no field of it/],
    'an unknown wire': [{ ...hello, wire: 'pigeon' }, /wire is "pigeon"; expected tcp or rdma-shm/],
    'an unknown strategy': [{ ...hello, strategy: 'luck' }, /strategy is "luck"/],
    'blocks of an odd size': [{ ...offer, blockBytes: 65_537 }, /blockBytes is 65537; expected a power of two/],
    'blocks too small': [{ ...offer, blockBytes: 4096 }, /blockBytes is 4096; expected 65536 to/],
    'a negative size': [{ ...offer, sizeBytes: -1 }, /sizeBytes is -1/],
    'a size that is no number': [{ kind: 'size', sizeBytes: '12' }, /sizeBytes is "12"/],
    'a size past 2^53': [{ kind: 'size', sizeBytes: 2 ** 53 }, /sizeBytes is 9007199254740992/],
    'a token of other digits': [{ ...offer, token: 'z'.repeat(32) }, /token is "z+"; expected 32 hex/],
    'a pool of one block': [{ kind: 'accept', poolBlocks: 1, queuePairs: [] }, /poolBlocks is 1; expected 2 to 65536/],
    'one queue pair': [
      { kind: 'connect', queuePairs: [endpoint] },
      /queuePairs is a list of 1; expected two queue pairs or none/,
    ],
    'three queue pairs': [{ kind: 'connect', queuePairs: [endpoint, endpoint, endpoint] }, /queuePairs is a list of 3/],
    'queue pairs that are none': [
      { kind: 'connect', queuePairs: [endpoint, 2] },
      /queuePairs\[1\] is 2; expected an object/,
    ],
    'a done with more': [{ kind: 'done', done: true }, /done is no field of it/],
  };
  for (const [name, [value, reason]] of Object.entries(wrong)) {
    test(name, () => {
      assert.throws(
        () => vortexProtocol.decode(value),
        (error) => error instanceof ProtocolError && reason.test(error.message),
      );
    });
  }
});
