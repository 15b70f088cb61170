// Runs a program in a host to its end, and fails with what it said unless it succeeds.

import type { Host, ProgramResult } from '../../src/lab/index.ts';
import { TIMEOUT_MS } from './eventually.ts';

export async function succeed(host: Host, command: string, args: readonly string[], input = ''): Promise<string> {
  const result: ProgramResult = await host.run(command, args, { input, signal: AbortSignal.timeout(2 * TIMEOUT_MS) });
  if (result.code === 0) return result.stdout;
  const how = `${command} ${args.join(' ')} in host ${host.name} ended with ${result.signal ?? result.code}`;
  throw new Error(`${how}\n${result.stdout}\n${result.stderr}`);
}
