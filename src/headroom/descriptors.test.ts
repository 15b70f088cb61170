// Descriptors that are left: when a process is short of them, and when it is not any more.
// Runs in a process of its own: it takes all descriptors of its process.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { noDescriptors } from '../native/fixtures/no-descriptors.ts';
import { EventFd } from '../native/index.ts';
import { Descriptors } from './descriptors.ts';
import { marksOf } from './marks.ts';

describe('descriptors that are left', () => {
  test('have marks in order, whatever the limit', () => {
    assert.deepEqual(marksOf(1024), { limit: 1024, short: 896, refuse: 960, enough: 768 });
    assert.deepEqual(marksOf(524_288), { limit: 524_288, short: 523_264, refuse: 523_776, enough: 522_240 });
    fc.assert(
      fc.property(fc.integer({ min: 64, max: 2 ** 30 }), (limit) => {
        const { short, refuse, enough } = marksOf(limit);
        assert.ok(0 < enough && enough < short && short < refuse && refuse < limit, `${limit}`);
      }),
    );
  });

  test('are short for all threads once one has got a high number, and until many are free', () => {
    using probe = EventFd.create();
    // So that the lowest free number is below all marks, and then above.
    const roomy = Descriptors.create(2 * probe.fd + 256);
    const other = new Descriptors(roomy.memory);
    assert.deepEqual([roomy.note(roomy.marks.short - 1), other.isShort], [true, false]);
    assert.deepEqual([roomy.note(roomy.marks.short), other.isShort], [true, true]);
    assert.equal(roomy.note(roomy.marks.refuse), false);
    assert.ok(other.look() >= probe.fd);
    assert.equal(roomy.isShort, false);
    const tight = Descriptors.create(probe.fd + 1);
    tight.look();
    assert.equal(tight.isShort, true);
  });

  test('stay short between the marks', () => {
    using many = new DisposableStack();
    const numbers = Array.from({ length: 200 }, () => many.use(EventFd.create()).fd);
    const last = Math.max(...numbers);
    const between = Descriptors.create(Math.floor(last * 1.25));
    const { enough, short } = between.marks;
    assert.ok(enough < last && last + 8 < short);
    between.look();
    assert.equal(between.isShort, false);
    between.noteShortage();
    between.look();
    assert.equal(between.isShort, true);
    many.dispose();
    between.look();
    assert.equal(between.isShort, false);
  });

  test('are all in use where none can be had', async () => {
    const descriptors = Descriptors.create();
    await using _ = await noDescriptors();
    assert.equal(descriptors.look(), descriptors.marks.limit);
    assert.equal(descriptors.isShort, true);
  });
});
