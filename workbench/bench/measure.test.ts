import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { measureRow, median, summarize } from './measure.ts';
import { plot } from './plot.ts';
import { tableRows } from './report.ts';
import type { Row } from './row.ts';
import { selectRows } from './rows.ts';

const signal = new AbortController().signal;

function row(options: Partial<Row> & { ours?: number[]; plain?: number[] }): Row {
  const { ours = [1], plain, ...rest } = options;
  const next = (values: number[]) => async (): Promise<number> => values.shift() ?? Number.NaN;
  return {
    id: 'test.row',
    what: 'a test',
    unit: 'ns',
    better: 'lower',
    prepare: async () => ({
      ours: next(ours),
      against: plain === undefined ? {} : { plain: next(plain) },
      [Symbol.asyncDispose]: async () => {},
    }),
    ...rest,
  };
}

describe('measuring', () => {
  test('an unknown id is refused with the nearest one', () => {
    assert.throws(() => selectRows(['native.pump.65']), {
      code: 'MILLRACE_ERR_USAGE',
      message: /did you mean native.pump.64/,
    });
    assert.throws(() => selectRows(['(']), { code: 'MILLRACE_ERR_USAGE' });
  });

  test('patterns choose rows in the order of the list, each once', () => {
    const all = ['a.1', 'a.2', 'b'].map((id) => row({ id }));
    assert.deepEqual(
      selectRows(['b', 'a.*', 'a.1'], all).map(({ id }) => id),
      ['a.1', 'a.2', 'b'],
    );
    assert.equal(selectRows([], all).length, 3);
  });

  test('a row whose round is a whole experiment has no more rounds than it says', async () => {
    const { rounds, ours } = await measureRow(row({ ours: [7, 8], rounds: 1 }), { rounds: 3, roundMs: 1, signal });
    assert.deepEqual({ rounds, ours }, { rounds: [{ ours: 7 }], ours: 7 });
  });

  test('no round is dropped, and the ratio is the median of the rounds', async () => {
    const result = await measureRow(row({ ours: [10, 20, 900], plain: [10, 10, 100] }), {
      rounds: 3,
      roundMs: 1,
      signal,
    });
    assert.deepEqual(result.rounds, [
      { ours: 10, plain: 10 },
      { ours: 20, plain: 10 },
      { ours: 900, plain: 100 },
    ]);
    assert.equal(result.ours, 20);
    assert.deepEqual(result.against, { plain: 10 });
    assert.deepEqual(result.ratio, { plain: 2 });
  });

  test('entrants take turns in going first', async () => {
    const order: string[] = [];
    const entrant = (name: string) => async (): Promise<number> => order.push(name);
    const prepare: Row['prepare'] = async () => ({
      ours: entrant('ours'),
      against: { plain: entrant('plain') },
      [Symbol.asyncDispose]: async () => {},
    });
    await measureRow(row({ prepare }), { rounds: 2, roundMs: 1, signal });
    assert.deepEqual(order, ['ours', 'plain', 'plain', 'ours']);
  });

  test('everything is closed when a measurement throws or is aborted', async () => {
    let closed = 0;
    const prepare: Row['prepare'] = async () => ({
      ours: async () => Promise.reject(new Error('broken')),
      against: {},
      [Symbol.asyncDispose]: async () => void closed++,
    });
    await assert.rejects(measureRow(row({ prepare }), { rounds: 1, roundMs: 1, signal }), /broken/);
    await assert.rejects(measureRow(row({ prepare }), { rounds: 1, roundMs: 1, signal: AbortSignal.abort() }), {
      name: 'AbortError',
    });
    assert.equal(closed, 2);
  });

  test('what a row reached depends on whether more or less is better', () => {
    const verdict = (better: Row['better'], ours: number): string | undefined => {
      const spec = row({ better, threshold: 2, goal: better === 'higher' ? 3 : 1 });
      return tableRows(spec, summarize(spec, [{ ours }]))[0]?.at(-1);
    };
    assert.deepEqual(
      [3, 2, 1].map((ours) => verdict('higher', ours)),
      ['goal', 'threshold', 'neither'],
    );
    assert.deepEqual(
      [1, 2, 3].map((ours) => verdict('lower', ours)),
      ['goal', 'threshold', 'neither'],
    );
  });

  test('a plot has a dot for every figure', () => {
    const svg = plot(
      summarize(row({}), [
        { ours: 1, plain: 2 },
        { ours: 3, plain: 4 },
      ]),
    );
    assert.equal(svg.split('<circle').length - 1, 4);
  });

  test('the median of an even number of values lies between the middle two', () => {
    assert.equal(median([4, 1, 3, 2]), 2.5);
    assert.equal(median([5]), 5);
  });
});
