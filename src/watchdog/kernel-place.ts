// Where a thread of this process is in the kernel's eyes: whether it runs, waits or is held, and in
// which system call.

import { readFileSync } from 'node:fs';

/** Frames of the kernel's stack that are told. */
const MAX_FRAMES = 8;

/** One line for people, such as `S (sleeping) in system call 232: do_epoll_wait < ep_poll`. */
export function kernelPlace(threadId: number): string {
  const read = (name: string): string => readOf(`/proc/self/task/${threadId}/${name}`);
  const status = read('status');
  if (status === '') return `ended`;
  const state = /^State:\s*(.*)$/m.exec(status)?.[1] ?? 'state unknown';
  // `running`, or the number of the call and its arguments.
  const call = /^(\d+) /.exec(read('syscall'))?.[1];
  const frames = [...read('stack').matchAll(/^\[<[^>]*>\] ([\w.]+)/gm)].map(([, name]) => name);
  const place = frames.length > 0 ? frames.slice(0, MAX_FRAMES).join(' < ') : read('wchan').replace(/^0$/, '');
  return [
    state,
    ...(call === undefined ? [] : [`in system call ${call}`]),
    ...(place === '' ? [] : [`at ${place}`]),
  ].join(' ');
}

/** '' where it cannot be read: the thread has ended, or this process may not. */
function readOf(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
}
