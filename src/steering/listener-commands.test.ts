// Whose a listening socket is.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { ListenerCommands } from './listener-commands.ts';
import { scanListeners } from './listeners.ts';

/** A process that listens, takes the names that it is told, and starts a heir of its socket. */
const program = `
  process.title = 'first-name';
  const server = require('node:net').createServer().listen(0, '127.0.0.1', () => console.log(server.address().port));
  process.stdin.on('data', (text) => {
    if (String(text) !== 'start') process.title = String(text);
    else require('node:child_process').spawn('cat', { stdio: ['pipe', 'ignore', 'ignore', server._handle.fd] });
    console.log('done');
  });`;

test('the command of a listener is that of the process that has it, follows it, and ends with it', async () => {
  const child = spawn(process.execPath, ['-e', program], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const port = Number((await lines.next()).value);
  const inode = scanListeners().find((one) => one.port === port)?.inode ?? '';
  let found = Promise.withResolvers<void>();
  const commands = new ListenerCommands(() => found.resolve(), 0);
  // A search waits until enough time has passed since the one before.
  const search = async (): Promise<void> => {
    found = Promise.withResolvers();
    const timer = setInterval(() => commands.follow(new Set([inode, '0'])), 1);
    await found.promise;
    clearInterval(timer);
  };
  assert.deepEqual(commands.of(inode), ['']);
  await search();
  assert.deepEqual(commands.of(inode), ['first-name']);
  assert.deepEqual(commands.of('0'), [''], 'a socket that no process has');
  child.stdin.write('second-name');
  await lines.next();
  commands.follow(new Set([inode]));
  assert.deepEqual(commands.of(inode), ['second-name'], 'it is known at once');
  child.stdin.write('start');
  await lines.next();
  // The heir is another program a moment after its start.
  while (!commands.of(inode).includes('cat')) await search();
  assert.deepEqual(commands.of(inode).toSorted(), ['cat', 'second-name']);
  child.kill('SIGKILL');
  await once(child, 'close');
  commands.follow(new Set());
  assert.deepEqual(commands.of(inode), ['']);
});
