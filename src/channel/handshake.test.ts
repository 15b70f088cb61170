// What lanes say to each other to connect: a peer may send anything, and only valid messages get
// through.
// Runs in a process of its own: it awaits a handshake before it registers tests.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { ProtocolError } from '../errors.ts';
import { Joined } from './fixtures/joined.ts';
import { linkProtocol } from './handshake.ts';

type Fields = Record<string, unknown>;

/** Of a real handshake. */
async function record(): Promise<{ offer: Fields; accept: Fields }> {
  await using joined = await Joined.up({ devices: ['soft-tcp'] });
  const bodies = joined.said.map(({ body }) => JSON.parse(JSON.stringify(body)) as Fields);
  const [offer, accept] = ['offer', 'accept'].map((kind) => bodies.find((body) => body.kind === kind));
  return { offer: offer ?? assert.fail(), accept: accept ?? assert.fail() };
}

const { offer, accept } = await record();

/** A copy with one field at a path changed. */
function changed(message: Fields, path: string, value: unknown): Fields {
  const copy = structuredClone(message);
  const names = path.split('.');
  let at = copy;
  for (const name of names.slice(0, -1)) at = at[name] as Fields;
  at[names.at(-1) ?? ''] = value;
  return copy;
}

/** Paths of all fields, those of objects and lists included. */
function pathsOf(value: unknown, prefix = ''): string[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, inner]) => [`${prefix}${name}`, ...pathsOf(inner, `${prefix}${name}.`)]);
}

describe('a message of a handshake', () => {
  const protocolErrors: readonly [string, Fields, RegExp][] = [
    ['of no kind', {}, /its kind is missing; expected offer or accept/],
    ['of an unknown kind', { kind: 'offers', attempt: 1 }, /its kind is "offers"/],
    ['with another layout', changed(offer, 'layout', 1), /layout is 1; expected 3/],
    ['without a session', changed(offer, 'session', 'me'), /session is "me"; expected 32 hex/],
    ['with a wire that is none', changed(offer, 'wire', '../x'), /wire is "..\/x"; expected the name/],
    ['neither new nor resumed', changed(offer, 'isResumed', 1), /isResumed is 1; expected true or false/],
    ['with slots that are no power of two', changed(offer, 'geometry.slots', 1000), /ring of 1000 slots/],
    ['with a ring of 64 GiB', changed(changed(offer, 'geometry.slots', 2 ** 24), 'geometry.slotBytes', 4096), /1 GiB/],
    ['with records as long as the ring', changed(offer, 'geometry.maxRecordSlots', 1024), /records of 1024 slots/],
    ['with no queue pairs', changed(offer, 'transport.qps', []), /qps is a list of .*; expected a list of 2 to 17/],
    [
      'with a thousand queue pairs',
      changed(
        offer,
        'transport.qps',
        Array.from({ length: 1000 }, () => 0),
      ),
      /qps is a list of .*; expected a list of 2 to 17/,
    ],
    ['with a region past 2^53', changed(offer, 'transport.region.address', 2 ** 53 - 2), /ends below 2\^53/],
    [
      'with a negative position',
      changed(accept, 'read.position', -1),
      /read.position is -?\d+; expected 0 to 4294967295/,
    ],
    [
      'with a position past 2^32',
      changed(accept, 'read.position', 2 ** 32),
      /read.position is -?\d+; expected 0 to 4294967295/,
    ],
    [
      'with a rejection of no kind',
      { kind: 'reject', attempt: 1, code: 'never' },
      /code is "never"; expected session or device/,
    ],
  ];
  for (const [name, body, message] of protocolErrors) {
    test(`${name} is refused with the reason`, () => {
      assert.throws(
        () => linkProtocol.decode(body),
        (error) => error instanceof ProtocolError && message.test(error.message),
      );
    });
  }

  test('comes out as it went in', () => {
    for (const body of [offer, accept]) {
      const again = JSON.parse(JSON.stringify(linkProtocol.encode(linkProtocol.decode(body)))) as Fields;
      assert.deepEqual(again, body);
    }
  });

  test('a reason is short, of one line, and plain text', () => {
    const reason = `\u001b[31m${'x'.repeat(1000)}\n`;
    const heard = linkProtocol.decode({ kind: 'closed', attempt: 1, reason });
    assert.ok(heard.kind === 'closed' && heard.reason.length <= 200 && /^[\x20-\x7e]*$/.test(heard.reason));
    const odd = { kind: 'broken', attempt: 1, reason: { toString: 1, valueOf: 1 } };
    assert.throws(() => linkProtocol.decode(odd), /reason is an object; expected a text/);
  });

  test('whatever else is said is either heard or refused, and nothing else happens', () => {
    const paths = pathsOf(offer);
    fc.assert(
      fc.property(fc.constantFrom(...paths), fc.jsonValue(), fc.boolean(), (path, value, isKind) => {
        for (const body of [
          changed(offer, path, value),
          isKind ? { kind: 'reject', attempt: value } : { [path]: value },
        ]) {
          try {
            linkProtocol.decode(body);
          } catch (error) {
            assert.ok(error instanceof ProtocolError, String(error));
            assert.ok(error.message.length < 400);
          }
        }
      }),
      { numRuns: 1000 },
    );
  });
});

describe('a session that hears', () => {
  test('nonsense: a protocol error, and what is up stays up', async () => {
    await using joined = await Joined.up({ devices: ['soft-tcp'] });
    joined.acceptor.sessions[0]?.hear({ kind: 'offer', attempt: -1 });
    assert.match(joined.acceptor.protocolErrors[0] ?? '', /link message: .* is missing/);
    assert.equal(joined.acceptor.sessions[0]?.link?.isUp, true);
  });

  test('an offer, though it is the one that offers: a protocol error', async () => {
    await using joined = await Joined.up({ devices: ['soft-tcp'] });
    joined.dialer.sessions[0]?.hear(offer);
    assert.match(joined.dialer.protocolErrors[0] ?? '', /it sent an offer, though it is the acceptor/);
  });

  test('the same offer again, or an older one: nothing happens', async () => {
    await using joined = await Joined.up({ devices: ['soft-tcp'] });
    const before = joined.said.length;
    const [dialer, acceptor] = joined.sessions;
    for (const { body, isToDialer } of joined.said.slice()) (isToDialer ? dialer : acceptor)?.hear(body);
    assert.deepEqual(
      [joined.said.length, joined.acceptor.protocolErrors, joined.dialer.protocolErrors],
      [before, [], []],
    );
    const pair = await joined.connect();
    for (const program of pair) program.toSend = 50_000;
    await joined.until('all is said', () => pair.every(({ received }) => received === 50_000));
  });

  test('answers to another attempt: nothing happens', async () => {
    await using joined = await Joined.up({ devices: ['soft-tcp'] });
    const [dialer, acceptor] = joined.sessions;
    for (const kind of ['broken', 'closed', 'ready']) {
      dialer?.hear({ kind, attempt: 99, reason: '' });
      acceptor?.hear({ kind, attempt: 99, reason: '' });
    }
    dialer?.hear({ ...accept, attempt: 99 });
    assert.deepEqual(
      joined.sessions.map(({ state }) => state),
      ['up', 'up'],
    );
  });

  const unfit: readonly [string, string, unknown, RegExp][] = [
    ['rings of another length', 'geometry.slots', 2048, /rings of 2048 slots/],
    ['a region that is shorter than its rings', 'transport.region.sizeBytes', 4096, /region of 4096 bytes/],
  ];
  for (const [name, path, value, reason] of unfit) {
    test(`${name}: a protocol error`, async () => {
      await using joined = await Joined.up({ devices: ['soft-tcp'] });
      const last = joined.said.find(({ body }) => 'kind' in body && body.kind === 'offer')?.body as Fields;
      joined.acceptor.sessions[0]?.hear({ ...changed(last, path, value), attempt: 7, isResumed: true });
      assert.match(joined.acceptor.protocolErrors[0] ?? '', reason);
    });
  }

  test('a read position that was never written: a protocol error, and its streams end', async () => {
    await using joined = await Joined.up({ devices: ['soft-tcp'] });
    const [client] = await joined.connect(joined.acceptor);
    const last = joined.said.find(({ body }) => 'kind' in body && body.kind === 'offer')?.body as Fields;
    joined.acceptor.sessions[0]?.hear({ ...changed(last, 'read.position', 30_000), attempt: 7, isResumed: true });
    joined.acceptor.sessions[0]?.hear({ kind: 'ready', attempt: 7 });
    assert.match(joined.acceptor.protocolErrors[0] ?? '', /its read position is past what was written/);
    await joined.until('its streams end', () => client.error !== '');
  });
});
