// Reads the certificates that a config names.

import { readFile } from 'node:fs/promises';
import { UsageError } from '../errors.ts';

export interface TlsMaterial {
  readonly ca: Buffer;
  readonly cert: Buffer;
  readonly key: Buffer;
}

/** Paths. */
export interface TlsFiles {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

/** Read anew at each load: certificates are renewed in place. */
export async function readTlsMaterial({ ca, cert, key }: TlsFiles): Promise<TlsMaterial> {
  const [caBytes, certBytes, keyBytes] = await Promise.all([
    readPart('ca', ca),
    readPart('cert', cert),
    readPart('key', key),
  ]);
  return { ca: caBytes, cert: certBytes, key: keyBytes };
}

async function readPart(name: string, path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new UsageError(`read tls.${name} from ${path}: ${code}; millrace peer cert makes certificates for a lab`, {
      cause: error,
    });
  }
}
