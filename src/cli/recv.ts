// `millrace recv`: fetches what `millrace send` offers, into a file or a pipe.

import { UsageError } from '../errors.ts';
import { DEFAULT_PORT, parseAddress, receiveFile } from '../vortex/files/index.ts';
import type { AddCommand } from './command.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import { addFileTransferOptions, type FileTransferFlags, fileTransferSettings, Talk } from './send-options.ts';
import type { World } from './world.ts';

interface Options extends FileTransferFlags {
  readonly force?: boolean;
}

const about = `
The file is written as FILE.millrace-part, and gets its name when all of it is on the disk and its sha256 is the sender's.
When the transfer breaks, the part stays: the same command goes on from there, after both sides have compared the part.

Examples:
  millrace recv 10.0.0.1                   into this folder, with the sender's name
  millrace recv 10.0.0.1:9000 disk.img
  millrace recv 10.0.0.1 - | tar x         a pipe
`;

export const addRecv: AddCommand = (program, { world, finish }) => {
  const command = program
    .command('recv')
    .description('Receive what millrace send offers on another host.')
    .argument('<host>', `host of the sender: HOST or HOST:PORT (default port: ${DEFAULT_PORT})`)
    .argument('[file]', 'file or folder to write (default: this folder); - is standard output')
    .option('-f, --force', 'replace an existing file');
  addFileTransferOptions(command, 0, 'how long to wait for a sender, also after a transfer breaks')
    .addHelpText('after', about)
    .action((host: string, file: string | undefined, options: Options) =>
      finish(() => receive(host, file, options, world)),
    );
};

async function receive(where: string, file: string | undefined, options: Options, world: World): Promise<ExitCode> {
  using talk = new Talk(world, 'receiving', options);
  const isPipe = file === '-';
  if (isPipe && options.json) throw new UsageError('--json would be mixed up with the file on standard output');
  const { host, port } = parseAddress(where);
  if (host === undefined) throw new UsageError(`receive from ${where}: there is no host; give HOST or HOST:PORT`);
  const receipt = await receiveFile({
    ...fileTransferSettings(options, world, (news) => talk.hear(news)),
    address: { host, port },
    target: isPipe ? world.stdout : file,
    force: options.force ?? false,
  });
  talk.end(`received ${receipt.path ?? 'the pipe'}:`, receipt, options);
  return exitCode.ok;
}
