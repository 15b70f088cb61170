// Reads a config file.

import { open } from 'node:fs/promises';
import { UsageError } from '../errors.ts';
import type { Config, Environment } from './config.ts';
import { MAX_CONFIG_BYTES, parseConfig } from './parse.ts';

export interface LoadedConfig {
  /** The path as it was given. */
  readonly path: string;
  readonly config: Config;
}

export async function loadConfig(path: string, env: Environment = process.env): Promise<LoadedConfig> {
  return { path, config: parseConfig(await readText(path), path, env) };
}

async function readText(path: string): Promise<string> {
  let bytes: Buffer;
  try {
    await using file = await open(path);
    // Reading one byte more than allowed shows that the file is too large, even if it is an endless
    // device.
    const room = Buffer.alloc(MAX_CONFIG_BYTES + 1);
    let length = 0;
    for (;;) {
      const { bytesRead } = await file.read(room, length, room.length - length);
      length += bytesRead;
      if (bytesRead === 0 || length === room.length) break;
    }
    bytes = room.subarray(0, length);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const advice = code === 'EACCES' ? ' (a running daemon reads only what root may read; see docs/privileges.md)' : '';
    throw new UsageError(`read the config ${path}: ${code}${advice}`, { cause: error });
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    throw new UsageError(`read the config ${path}: it is not UTF-8 text; save it as UTF-8`, { cause: error });
  }
}
