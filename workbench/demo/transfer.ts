// The bulk transfer between two lab hosts, in which the checksums of sender and receiver must be
// the same.

import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { MillraceError } from '../../src/errors.ts';
import type { Host } from '../../src/lab/index.ts';

const program = new URL('./transfer-program.ts', import.meta.url).pathname;

export interface TransferServer extends AsyncDisposable {
  readonly host: Host;
  readonly port: number;
  readonly sizeBytes: number;
  readonly sha256: string;
}

export interface TransferFigures {
  readonly sizeBytes: number;
  readonly seconds: number;
  readonly bytesPerSecond: number;
  readonly sha256: string;
}

export async function startTransferServer(host: Host, port: number, sizeBytes: number): Promise<TransferServer> {
  const args = [program, 'serve', String(port), String(sizeBytes)];
  const child = host.spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  const stop = async (): Promise<void> => {
    child.kill('SIGKILL');
    await exited;
  };
  const { stdout } = child;
  if (stdout === null)
    throw new MillraceError('MILLRACE_ERR_FAILED', 'start the sender of the transfer: it has no standard output');
  for await (const line of createInterface(stdout)) {
    const { sha256 } = JSON.parse(line) as { readonly sha256: string };
    return { host, port, sizeBytes, sha256, [Symbol.asyncDispose]: stop };
  }
  throw new MillraceError('MILLRACE_ERR_FAILED', `start the sender of the transfer in host ${host.name}: it ended`);
}

/** Throws when the received bytes are not those that were sent. */
export async function fetchOnce(client: Host, server: TransferServer, signal: AbortSignal): Promise<TransferFigures> {
  const { sizeBytes } = server;
  const args = [program, 'fetch', server.host.ipv4, String(server.port), String(sizeBytes)];
  const { stdout, stderr, code } = await client.run(process.execPath, args, { signal });
  signal.throwIfAborted();
  const result = code === 0 ? (JSON.parse(stdout) as { bytes: number; seconds: number; sha256: string }) : undefined;
  if (result === undefined || result.bytes !== sizeBytes || result.sha256 !== server.sha256) {
    const what = result === undefined ? stderr.trim() : `${result.bytes} bytes with another checksum`;
    throw new MillraceError('MILLRACE_ERR_FAILED', `fetch ${sizeBytes} bytes from ${server.host.name}: got ${what}`);
  }
  return { sizeBytes, seconds: result.seconds, bytesPerSecond: sizeBytes / result.seconds, sha256: result.sha256 };
}
