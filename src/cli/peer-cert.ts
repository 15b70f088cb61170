// `millrace peer cert`: makes a certificate authority for a lab, and certificates for its nodes.

import { relative, resolve } from 'node:path';
import { type Command, InvalidArgumentError } from 'commander';
import { UnsupportedError } from '../errors.ts';
import { findProgram } from '../lab/index.ts';
import { type LabCertificates, makeLabCertificates } from '../tls/index.ts';
import type { CommandContext } from './command.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import type { World } from './world.ts';

interface Options {
  readonly dir: string;
  readonly days: number;
  readonly caDays: number;
  readonly force?: true;
}

const examples = `
Examples:
  millrace peer cert a b --dir certs     a CA, and certificates for the nodes a and b
  millrace peer cert c --dir certs       one more, by the same CA`;

export function addPeerCert(peerCommand: Command, { world, finish }: CommandContext): void {
  peerCommand
    .command('cert')
    .description('Make the certificates of nodes, and print what to put into their configs. The CA is made once.')
    .argument('<name...>', 'node names, as in the config')
    .requiredOption('--dir <dir>', 'the folder of certificates and keys')
    .option('--days <count>', 'how long the certificates are valid', days, 365)
    .option('--ca-days <count>', 'how long a new CA is valid', days, 3650)
    .option('--force', 'overwrite existing certificates of these nodes')
    .addHelpText('after', examples)
    .action((names: readonly string[], options: Options) => finish(() => peerCert(names, options, world)));
}

function days(text: string): number {
  const value = Number(text);
  if (/^\d{1,5}$/.test(text) && value >= 1 && value <= 36_500) return value;
  throw new InvalidArgumentError('Give a number from 1 to 36500.');
}

async function peerCert(names: readonly string[], options: Options, world: World): Promise<ExitCode> {
  const openssl = findProgram('openssl', world.env.PATH);
  if (openssl === null) {
    throw new UnsupportedError('make certificates: openssl is not installed; try: apt-get install openssl');
  }
  const { dir, force = false } = options;
  const made = await makeLabCertificates({
    openssl,
    folder: resolve(dir),
    names,
    days: options.days,
    caDays: options.caDays,
    force,
    signal: world.signal,
  });
  tell(made, world);
  return exitCode.ok;
}

function tell({ ca, isCaNew, nodes }: LabCertificates, world: World): void {
  const here = (file: string): string => {
    const path = relative('', file);
    return path.startsWith('..') ? file : path;
  };
  world.stderr.write(
    `${isCaNew ? 'made' : 'used'} the CA ${here(ca)}; its key stays here, whoever has it can be any node\n`,
  );
  world.stderr.write('copy ca.pem and the two files of a node to its host, and put into its config:\n');
  for (const { name, cert, key } of nodes) {
    const lines = [`# ${name}`, 'tls:', `  ca: ${JSON.stringify(ca)}`, `  cert: ${JSON.stringify(cert)}`];
    world.stdout.write(`${[...lines, `  key: ${JSON.stringify(key)}`].join('\n')}\n`);
  }
}
