import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ProtocolError } from '../../errors.ts';
import { helloMessage, type Message } from './control-protocol.ts';
import { Handshake, makeNonce } from './handshake.ts';

const helloOf = (name: string) => ({
  name,
  incarnation: makeNonce(),
  lanes: 1,
  wires: [],
  admission: 'packets' as const,
});
const side = (name: string, isDialer: boolean, identify = (): void => {}) =>
  new Handshake({ hello: helloOf(name), isDialer, identify });

const nameOf = ({ peer }: Handshake): string | undefined => peer?.name;

/** What one side says, to the other. */
function pass(message: Message | undefined, to: Handshake): Message | undefined {
  assert.ok(message !== undefined);
  return to.hear(message);
}

describe('the handshake', () => {
  test('what is said before the hello, without a nonce, or with one of the dialer is refused', () => {
    assert.throws(() => side('b', false).hear({ kind: 'ping', number: 1 }), /the first message is not a hello/);
    assert.throws(
      () => side('b', false).hear({ kind: 'proof', nonce: makeNonce() }),
      /the first message is not a hello/,
    );
    const hello = helloMessage(helloOf('c'));
    assert.throws(() => side('a', true).hear(hello), /a hello without a nonce/);
    assert.throws(() => side('b', false).hear({ ...hello, nonce: makeNonce() }), /a nonce from a dialer/);
  });

  test('both know each other after hello, hello and proof, and the listener not before', () => {
    const dialer = side('a', true);
    const listener = side('b', false);
    assert.equal(listener.open(), undefined);
    const answer = pass(dialer.open(), listener);
    assert.equal(nameOf(listener), undefined);
    const proof = pass(answer, dialer);
    assert.equal(nameOf(dialer), 'b');
    assert.equal(pass(proof, listener), undefined);
    assert.equal(nameOf(listener), 'a');
  });

  test('who is not who it says is not answered', () => {
    const listener = side('b', false, () => {
      throw new ProtocolError('an unknown peer');
    });
    assert.throws(() => pass(side('a', true).open(), listener), /an unknown peer/);
    assert.equal(nameOf(listener), undefined);
  });

  test('a second hello, another line in the place of the proof, and a recorded proof are refused', () => {
    const hello = side('a', true).open();
    const greeted = (): Handshake => {
      const listener = side('b', false);
      pass(hello, listener);
      return listener;
    };
    assert.throws(() => pass(hello, greeted()), /a second hello/);
    assert.throws(
      () => greeted().hear({ kind: 'announce', endpoints: [] }),
      /the message after the hello is not a proof/,
    );
    const recorded = pass(pass(hello, side('b', false)), side('a', true));
    const listener = greeted();
    assert.throws(() => pass(recorded, listener), /the proof is of another connection/);
    assert.equal(nameOf(listener), undefined);
  });
});
