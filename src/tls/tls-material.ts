// Reads the certificates that a config names.

import { readFile } from 'node:fs/promises';
import { UsageError } from '../errors.ts';

export interface TlsMaterial {
  readonly ca: Buffer;
  readonly cert: Buffer;
  readonly key: Buffer;
  readonly crl?: Buffer;
}

/** Paths. */
export interface TlsFiles {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  readonly crl?: string | undefined;
}

/** Read anew at each load: certificates are renewed in place. */
export async function readTlsMaterial({ ca, cert, key, crl }: TlsFiles): Promise<TlsMaterial> {
  const [caBytes, certBytes, keyBytes, crlBytes] = await Promise.all([
    readPart('ca', ca),
    readPart('cert', cert),
    readPart('key', key),
    crl === undefined ? undefined : readPart('crl', crl),
  ]);
  return { ca: caBytes, cert: certBytes, key: keyBytes, ...(crlBytes !== undefined && { crl: crlBytes }) };
}

async function readPart(name: string, path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const advice = name === 'crl' ? 'openssl ca -gencrl makes one' : 'millrace peer cert makes certificates for a lab';
    throw new UsageError(`read tls.${name} from ${path}: ${code}; ${advice}`, { cause: error });
  }
}
