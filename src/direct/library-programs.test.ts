import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LibraryPrograms } from './library-programs.ts';

function made(): { readonly programs: LibraryPrograms; readonly news: string[] } {
  const news: string[] = [];
  const programs = new LibraryPrograms({
    onProcess: (pid, isThere) => news.push(`${pid} ${isThere ? 'is there' : 'is gone'}`),
    onListeners: () => news.push('listeners'),
  });
  return { programs, news };
}

test('processes are told when they come and go, and their listeners with them', () => {
  const { programs, news } = made();
  const one = { id: 1, pid: 4711 };
  programs.add(one);
  programs.listens(one, '17');
  programs.listens(one, '17');
  assert.deepEqual([programs.hasListener('17'), programs.hasListener('18')], [true, false]);
  programs.remove(one);
  programs.remove(one);
  assert.equal(programs.hasListener('17'), false);
  assert.deepEqual(news, ['4711 is there', 'listeners', 'listeners', '4711 is gone']);
});

test('who never said hello has no listeners, and its end is no news', () => {
  const { programs, news } = made();
  programs.listens({ id: 1, pid: 4711 }, '17');
  programs.remove({ id: 1, pid: 4711 });
  assert.deepEqual([programs.hasListener('17'), news], [false, []]);
});

test('a process with two conversations is there until both have ended; a socket that two have as well', () => {
  const { programs, news } = made();
  const [one, other] = [
    { id: 1, pid: 4711 },
    { id: 2, pid: 4711 },
  ];
  for (const program of [one, other]) {
    programs.add(program);
    programs.listens(program, '17');
  }
  news.splice(0);
  programs.remove(one);
  assert.ok(programs.hasListener('17'));
  assert.deepEqual(news.splice(0), ['listeners']);
  programs.remove(other);
  assert.deepEqual(news, ['listeners', '4711 is gone']);
});

test('of many listeners of one program the newest are known', () => {
  const { programs } = made();
  const one = { id: 1, pid: 4711 };
  programs.add(one);
  for (let inode = 1; inode <= 1025; inode++) programs.listens(one, String(inode));
  assert.deepEqual(
    [programs.hasListener('1'), programs.hasListener('2'), programs.hasListener('1025')],
    [false, true, true],
  );
});
