// `millrace send`: offers a file or a pipe to one receiver, and ends when it has it.

import { InvalidArgumentError } from 'commander';
import {
  addressText,
  DEFAULT_PORT,
  openFileSource,
  PipeSource,
  parseAddress,
  sendFile,
} from '../vortex/files/index.ts';
import type { AddCommand } from './command.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import { addFileTransferOptions, type FileTransferFlags, fileTransferSettings, Talk } from './send-options.ts';
import type { World } from './world.ts';

interface Options extends FileTransferFlags {
  readonly listen: string;
  readonly block?: number;
}

/** A block of a pipe is sent when it is full, so smaller blocks wait less. */
const PIPE_BLOCK_BYTES = 256 * 1024;

const about = `
The first receiver that connects gets the file; with --tls-ca it must show a certificate. Both sides compare the sha256 of
the whole file. When a transfer breaks, the receiver can come back within --wait, and gets what it does not have.

Examples:
  millrace send disk.img                        on port ${DEFAULT_PORT} of all addresses
  tar c folder | millrace send -                a pipe; cannot be resumed
  millrace send big.bin --transport soft-roce   over RDMA
  millrace send big.bin --listen 10.0.0.1:9000
`;

export const addSend: AddCommand = (program, { world, finish }) => {
  const command = program
    .command('send')
    .description('Send a file or a pipe to one receiver on another host (millrace recv).')
    .argument('<file>', 'what to send; - is standard input')
    .option('-l, --listen <address>', 'where the receiver connects: ADDRESS, ADDRESS:PORT or :PORT', `:${DEFAULT_PORT}`)
    .option('--block <size>', 'size of a block: 64K to 64M, a power of two (default: 4M, for a pipe 256K)', blockSize);
  addFileTransferOptions(command, 60, 'how long to wait for the receiver to come back when a transfer breaks')
    .addHelpText('after', about)
    .action((file: string, options: Options) => finish(() => send(file, options, world)));
};

async function send(file: string, options: Options, world: World): Promise<ExitCode> {
  using talk = new Talk(world, 'sending', options);
  const isPipe = file === '-';
  const address = parseAddress(options.listen);
  const receipt = await sendFile({
    ...fileTransferSettings(options, world, (news) => {
      if (news.kind === 'listening')
        talk.say(`${isPipe ? 'the pipe' : file} waits for a receiver on ${addressText(news)}`);
      else talk.hear(news);
    }),
    address,
    openSource: async () => (isPipe ? new PipeSource(world.stdin) : openFileSource(file)),
    blockBytes: options.block ?? (isPipe ? PIPE_BLOCK_BYTES : undefined),
  });
  talk.end(`sent to ${receipt.peer}:`, receipt, options);
  return exitCode.ok;
}

function blockSize(text: string): number {
  const [, digits = '', unit = ''] = /^(\d{1,8})([KM]?)$/i.exec(text) ?? [];
  const value = Number(digits) * { '': 1, K: 1024, M: 1024 * 1024 }[unit.toUpperCase() as '' | 'K' | 'M'];
  if (digits !== '' && Number.isInteger(Math.log2(value)) && value >= 2 ** 16 && value <= 2 ** 26) return value;
  throw new InvalidArgumentError('Give a power of two from 64K to 64M.');
}
