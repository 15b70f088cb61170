import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type IpEndpoint, parseIpEndpoint } from '../../steering/index.ts';
import { MAX_ENDPOINTS_PER_PEER } from './control-spec.ts';
import { ListenerNews, nothingTold } from './told-listeners.ts';

const endpoints = (...texts: readonly string[]): readonly IpEndpoint[] => texts.map(parseIpEndpoint);
const none = endpoints();

describe('what peers are told of listeners', () => {
  test('a change costs its own size, is written once for all, and withdraws before it announces', () => {
    const news = new ListenerNews();
    const many = Array.from({ length: 1000 }, (_, index) => `10.0.0.1:${index + 1}`);
    const before = news.told(endpoints(...many), none);
    const next = endpoints(...many.slice(1), '10.0.0.1:2000');
    const after = news.told(next, none);
    assert.equal(news.told(next, none), after, 'the same lists are one');
    const lines = news.between(before, after);
    assert.equal(
      lines.toString(),
      '{"kind":"withdraw","endpoints":["10.0.0.1:1"]}\n{"kind":"announce","endpoints":["10.0.0.1:2000"]}\n',
    );
    for (let peer = 0; peer < 1000; peer++) assert.equal(news.between(before, after), lines);
    assert.equal(news.between(after, after).length, 0);
    assert.equal(news.between(after, news.told(endpoints(...many.slice(1), '10.0.0.1:2000'), none)).length, 0);
  });

  test('who connects is told all, in lines that the other side takes', () => {
    const news = new ListenerNews();
    const many = Array.from({ length: 2500 }, (_, index) => `10.0.0.1:${index + 1}`);
    const lines = news
      .between(nothingTold, news.told(endpoints(...many), none))
      .toString()
      .trimEnd()
      .split('\n');
    assert.deepEqual(
      lines.map((line) => JSON.parse(line).endpoints.length),
      [1000, 1000, 500],
    );
  });

  test('of programs with the library only those are told that are told at all, and no peer too many', () => {
    const news = new ListenerNews();
    const both = endpoints('10.0.0.1:80', '10.0.0.1:81');
    const with80 = news.told(both, endpoints('10.0.0.1:80', '10.0.0.1:99'));
    const said = (from: typeof with80, to: typeof with80): readonly string[] =>
      news
        .between(from, to)
        .toString()
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => `${JSON.parse(line).kind} ${JSON.parse(line).endpoints}`);
    assert.deepEqual(said(nothingTold, with80), ['announce 10.0.0.1:80,10.0.0.1:81', 'announceLibrary 10.0.0.1:80']);
    const only81 = news.told(endpoints('10.0.0.1:81'), endpoints('10.0.0.1:81'));
    assert.deepEqual(said(with80, only81), [
      'withdrawLibrary 10.0.0.1:80',
      'withdraw 10.0.0.1:80',
      'announceLibrary 10.0.0.1:81',
    ]);
    const tooMany = Array.from({ length: MAX_ENDPOINTS_PER_PEER + 1 }, (_, index) => `10.0.0.1:${index + 1}`);
    assert.equal(news.told(endpoints(...tooMany), none).listeners.size, MAX_ENDPOINTS_PER_PEER);
  });
});
