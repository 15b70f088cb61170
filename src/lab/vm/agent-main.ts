// Starts the agent in a guest: finds its port, waits for the kernel modules, and sends `ready`.

import { readFileSync } from 'node:fs';
import { type FileHandle, open, readdir, readFile } from 'node:fs/promises';
import { release } from 'node:os';
import { dirname, join } from 'node:path';
import { Agent } from './agent.ts';
import { PipePool } from './agent-pipes.ts';
import { encodeFrame, FrameDecoder, protocolVersion, type ReadyMessage } from './frames.ts';

const portsDir = '/sys/class/virtio-ports';
const readBytes = 64 * 1024;

/** The host gave the port a name; its number depends on the order of the devices. */
async function openPort(name: string): Promise<FileHandle> {
  for (const port of await readdir(portsDir)) {
    const given = readFileSync(join(portsDir, port, 'name'), 'utf8').trim();
    if (given === name) return open(join('/dev', port), 'r+');
  }
  throw new Error(`this guest has no port ${name}`);
}

async function main(portName: string, modulesFifo: string): Promise<void> {
  const port = await openPort(portName);
  // One write at a time, so that the frames of two commands do not mix.
  let previous = Promise.resolve();
  const send = (frame: Uint8Array): Promise<void> => {
    previous = previous.then(() => writeAll(port, frame));
    return previous;
  };
  const agent = new Agent(send, new PipePool(dirname(modulesFifo)));
  // The script that loads the modules closes this when the last one is loaded.
  const problems = await readFile(modulesFifo, 'utf8');
  const ready: ReadyMessage = { version: protocolVersion, kernel: release(), problems: problems.trim() };
  await send(encodeFrame('ready', 0, JSON.stringify(ready)));
  const decoder = new FrameDecoder();
  const buffer = Buffer.alloc(readBytes);
  for (;;) {
    const { bytesRead } = await port.read(buffer, 0, readBytes, null);
    // The host has gone, so the guest ends.
    if (bytesRead === 0) return;
    for (const frame of decoder.push(Buffer.from(buffer.subarray(0, bytesRead)))) agent.receive(frame);
  }
}

async function writeAll(port: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length; ) {
    const { bytesWritten } = await port.write(bytes, at, bytes.length - at, null);
    at += bytesWritten;
  }
}

await main(process.argv[2] ?? '', process.argv[3] ?? '');
