// A certificate authority for labs: one CA in a folder, and a certificate and key for each node,
// made by openssl.

import { execFile } from 'node:child_process';
import { createPrivateKey, randomBytes, X509Certificate } from 'node:crypto';
import { chmodSync, existsSync, linkSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { MillraceError, UsageError } from '../errors.ts';
import { makeFolder } from '../system/index.ts';
import { isNodeName } from '../text/index.ts';

const run = promisify(execFile);
const DAY_MS = 24 * 60 * 60 * 1000;

export interface CertificateFiles {
  readonly name: string;
  readonly cert: string;
  readonly key: string;
}

export interface LabCaOptions {
  /** Whole path of the program. */
  readonly openssl: string;
  readonly folder: string;
  readonly names: readonly string[];
  readonly days: number;
  readonly caDays: number;
  /** Overwrite certificates of these names. The CA stays in any case. */
  readonly force?: boolean;
  readonly signal?: AbortSignal;
}

export interface LabCertificates {
  readonly ca: string;
  readonly isCaNew: boolean;
  readonly nodes: readonly CertificateFiles[];
}

/** All of them or none: made in a folder aside, and moved in place at the end. */
export async function makeLabCertificates(options: LabCaOptions): Promise<LabCertificates> {
  const { folder, names, force = false } = options;
  checkNames(names);
  makeFolder(folder, 0o700);
  const nodes = names.map((name) => ({ name, cert: join(folder, `${name}.pem`), key: join(folder, `${name}.key`) }));
  const [ca, caKey] = [join(folder, 'ca.pem'), join(folder, 'ca.key')];
  if (!force) refuseExisting(nodes);
  const isCaNew = !existsSync(ca) && !existsSync(caKey);
  if (isCaNew) refuseLonger(options);
  else checkCa(ca, caKey, options.days);
  const aside = mkdtempSync(join(folder, '.new-'));
  try {
    const maker = new Maker(options, aside);
    const made = isCaNew ? ['ca.pem', 'ca.key'] : [];
    if (isCaNew) await maker.makeCa();
    for (const name of names) {
      await maker.makeNode(name, isCaNew ? join(aside, 'ca.pem') : ca, isCaNew ? join(aside, 'ca.key') : caKey);
      made.push(`${name}.pem`, `${name}.key`);
    }
    publish(made, aside, folder, force);
  } finally {
    rmSync(aside, { recursive: true, force: true });
  }
  return { ca, isCaNew, nodes };
}

function checkNames(names: readonly string[]): void {
  for (const [index, name] of names.entries()) {
    if (!isNodeName(name)) throw new UsageError(`'${name}' cannot be the name of a node`);
    if (name === 'ca')
      throw new UsageError("a node called 'ca' would have the files of the authority; take another name");
    if (names.indexOf(name) !== index) throw new UsageError(`'${name}' is there twice`);
  }
}

function refuseExisting(nodes: readonly CertificateFiles[]): void {
  const there = nodes.flatMap(({ cert, key }) => [cert, key]).filter((file) => existsSync(file));
  if (there.length > 0) throw new UsageError(`${there.join(', ')} would be overwritten; give --force if that is meant`);
}

function refuseLonger({ days, caDays }: LabCaOptions): void {
  if (days > caDays)
    throw new UsageError(`certificates for ${days} days by a CA for ${caDays}; give --days ${caDays} or less`);
}

function checkCa(ca: string, caKey: string, days: number): void {
  const again = 'remove both and make all certificates anew';
  let certificate: X509Certificate;
  let isItsKey: boolean;
  try {
    certificate = new X509Certificate(readFileSync(ca));
    isItsKey = certificate.checkPrivateKey(createPrivateKey(readFileSync(caKey)));
  } catch (error) {
    throw new UsageError(`use the authority ${ca} with ${caKey}: ${(error as Error).message}; ${again}`, {
      cause: error,
    });
  }
  if (!isItsKey || !certificate.ca) throw new UsageError(`${caKey} is not the key of an authority ${ca}; ${again}`);
  const daysLeft = Math.floor((certificate.validToDate.getTime() - Date.now()) / DAY_MS);
  if (daysLeft < 1) throw new UsageError(`the authority ${ca} ends at ${certificate.validTo}; ${again}`);
  if (days > daysLeft)
    throw new UsageError(`the authority ${ca} ends in ${daysLeft} days; give --days ${daysLeft} or less`);
}

/** Runs openssl in the folder aside. */
class Maker {
  readonly #options: LabCaOptions;
  readonly #aside: string;

  constructor(options: LabCaOptions, aside: string) {
    this.#options = options;
    this.#aside = aside;
  }

  async makeCa(): Promise<void> {
    const { caDays } = this.#options;
    const config = this.#configFile('ca', 'millrace lab CA', [
      'basicConstraints = critical, CA:TRUE, pathlen:0',
      'keyUsage = critical, keyCertSign, cRLSign',
      'subjectKeyIdentifier = hash',
    ]);
    const output = ['-keyout', this.#file('ca.key'), '-out', this.#file('ca.pem'), '-days', String(caDays)];
    await this.#openssl(['req', '-x509', '-config', config, ...serial(), ...output]);
    this.#seal('ca');
  }

  async makeNode(name: string, ca: string, caKey: string): Promise<void> {
    const config = this.#configFile(name, name, [
      'basicConstraints = critical, CA:FALSE',
      'keyUsage = critical, digitalSignature',
      'extendedKeyUsage = serverAuth, clientAuth',
      `subjectAltName = DNS:${name}`,
      // Labs have authorities of the same name: tells them apart.
      'authorityKeyIdentifier = keyid:always',
    ]);
    const request = this.#file(`${name}.csr`);
    await this.#openssl(['req', '-new', '-config', config, '-keyout', this.#file(`${name}.key`), '-out', request]);
    const signing = ['-CA', ca, '-CAkey', caKey, ...serial(), '-days', String(this.#options.days)];
    const extensions = ['-extfile', config, '-extensions', 'extensions'];
    await this.#openssl(['x509', '-req', '-in', request, ...signing, ...extensions, '-out', this.#file(`${name}.pem`)]);
    this.#seal(name);
  }

  #file(name: string): string {
    return join(this.#aside, name);
  }

  /** A whole one, because the system's own adds extensions of its own. */
  #configFile(file: string, commonName: string, extensions: readonly string[]): string {
    const lines = [
      '[req]',
      'prompt = no',
      'distinguished_name = subject',
      'x509_extensions = extensions',
      'default_md = sha256',
      '[subject]',
      `CN = ${commonName}`,
      '[extensions]',
      ...extensions,
    ];
    const path = this.#file(`${file}.cnf`);
    writeFileSync(path, `${lines.join('\n')}\n`);
    return path;
  }

  async #openssl(args: readonly string[]): Promise<void> {
    const { openssl, signal } = this.#options;
    const fresh = args.includes('-keyout') ? ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'] : [];
    try {
      await run(openssl, [...args, ...fresh], { ...(signal && { signal }), env: { LC_ALL: 'C' } });
    } catch (error) {
      signal?.throwIfAborted();
      const { stderr } = error as { readonly stderr?: string };
      const said = stderr?.trim() || (error as Error).message;
      throw new MillraceError('MILLRACE_ERR_FAILED', `openssl ${args[0]}: ${said}`, { cause: error });
    }
  }

  #seal(name: string): void {
    chmodSync(this.#file(`${name}.key`), 0o600);
    chmodSync(this.#file(`${name}.pem`), 0o644);
  }
}

/** 159 bits, and positive; see RFC 5280, 4.1.2.2. */
function serial(): readonly string[] {
  const bytes = randomBytes(20);
  bytes[0] = (bytes[0] & 0x7f) | 0x40;
  return ['-set_serial', `0x${bytes.toString('hex')}`];
}

function publish(files: readonly string[], aside: string, folder: string, force: boolean): void {
  const undo: (() => void)[] = [];
  try {
    for (const file of files) {
      const [made, target, before] = [join(aside, file), join(folder, file), join(aside, `${file}.before`)];
      if (force && existsSync(target)) {
        linkSync(target, before);
        renameSync(made, target);
        undo.push(() => renameSync(before, target));
      } else {
        // Unlike a rename, a link never replaces a file that came up meanwhile.
        linkSync(made, target);
        undo.push(() => rmSync(target));
      }
    }
  } catch (error) {
    for (const step of undo.toReversed()) step();
    throw new MillraceError('MILLRACE_ERR_FAILED', `put certificates into ${folder}: ${(error as Error).message}`, {
      cause: error,
    });
  }
}
