// Whose a listening socket is.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { ListenerCommands } from './listener-commands.ts';
import { scanListeners } from './listeners.ts';

/** A process that listens, and takes the names that it is told. */
const program = `
  process.title = 'first-name';
  const server = require('node:net').createServer().listen(0, '127.0.0.1', () => console.log(server.address().port));
  process.stdin.on('data', (name) => { process.title = String(name); console.log('named'); });`;

test('the command of a listener is that of the process that has it, follows it, and ends with it', async () => {
  const child = spawn(process.execPath, ['-e', program], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const port = Number((await lines.next()).value);
  const inode = scanListeners().find((one) => one.port === port)?.inode ?? '';
  let found = Promise.withResolvers<void>();
  const commands = new ListenerCommands(() => found.resolve());
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
  await search();
  assert.deepEqual(commands.of(inode), ['second-name']);
  child.kill('SIGKILL');
  await once(child, 'close');
  commands.follow(new Set());
  assert.deepEqual(commands.of(inode), ['']);
});
