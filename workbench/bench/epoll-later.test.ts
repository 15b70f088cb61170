import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { compiled } from './compiled.ts';

/** Says what the program sees of an epoll, and what the kernel has of it. */
const script = `
import os, select, socket
epoll = select.epoll()
def kernel():
    lines = open(f'/proc/self/fdinfo/{epoll.fileno()}').read().splitlines()
    return sorted(int(line.split()[3], 16) & 5 for line in lines if line.startswith('tfd'))
def attempt(call, *words):
    try:
        return call(*words)
    except OSError as error:
        return error.errno
def say(*words): print(*words, '|', kernel())
a, b = socket.socketpair()
say('unknown', attempt(epoll.modify, a, 1), attempt(epoll.unregister, a))
say('file', attempt(epoll.register, os.open('/etc/hostname', os.O_RDONLY), 1))
say('add', attempt(epoll.register, a, 4), attempt(epoll.register, a, 4))
say('modify', attempt(epoll.modify, a, 1))
say('wait', epoll.poll(0))
b.send(b'x')
say('again', attempt(epoll.unregister, a), attempt(epoll.register, a, 5))
say('wait', [events for _, events in epoll.poll(0)])
say('delete', attempt(epoll.unregister, a), attempt(epoll.unregister, a))
say('wait', epoll.poll(0))
say('close', attempt(epoll.register, a, 1), attempt(epoll.modify, a, 4))
number = a.fileno()
a.close()
c, d = socket.socketpair()
say('same', c.fileno() == number, attempt(epoll.modify, c, 1), attempt(epoll.register, c, 4))
say('wait', [events for _, events in epoll.poll(0)])
edge = 1 << 31
say('edge', attempt(epoll.modify, c, 4 | edge), [events for _, events in epoll.poll(0)], epoll.poll(0))
say('rearmed', attempt(epoll.modify, c, 4 | edge), [events for _, events in epoll.poll(0)])
old = epoll.fileno()
epoll.close()
epoll = select.epoll()
say('epoll', old == epoll.fileno(), attempt(epoll.modify, c, 1), attempt(epoll.register, c, 4))
`;

function said(preload: string): readonly (readonly [seen: string, kernel: string])[] {
  const env = { ...process.env, LD_PRELOAD: preload };
  const lines = execFileSync('python3', ['-c', script], { encoding: 'utf8', env }).trim().split('\n');
  return lines.map((line) => {
    const [seen = '', kernel = ''] = line.split(' | ');
    return [seen, kernel];
  });
}

test('a program whose epoll_ctl calls are put off sees the same, and the kernel hears of it when it waits', async () => {
  const library = await compiled('epoll-later', AbortSignal.timeout(60_000), 'library');
  const [plain, later] = [said(''), said(library)];
  assert.deepEqual(
    later.map(([seen]) => seen),
    plain.map(([seen]) => seen),
  );
  const differing = plain.flatMap(([seen, kernel], index) =>
    later[index]?.[1] === kernel ? [] : [[seen.split(' ')[0], kernel, later[index]?.[1]]],
  );
  assert.deepEqual(differing, [
    ['modify', '[1]', '[4]'],
    ['again', '[5]', '[1]'],
    ['delete', '[]', '[5]'],
    ['close', '[4]', '[1]'],
  ]);
});
