// `millrace guest run`: runs a command in a virtual machine that uses the RDMA devices of this host
// through a backend.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { type Command, InvalidArgumentError } from 'commander';
import { UsageError } from '../errors.ts';
import { Guest } from '../lab/vm/index.ts';
import { Backend } from '../remoting/backend/index.ts';
import { closeEnds, QemuMachine, QemuWiring, registerMachine } from '../remoting/transports/index.ts';
import { parseSize } from '../text/index.ts';
import type { CommandContext } from './command.ts';
import type { World } from './world.ts';

interface Options {
  readonly name: string;
  readonly backend?: string;
  readonly device?: readonly string[];
  readonly shared: number;
  readonly programs: number;
  readonly memory: number;
  readonly cpus: number;
  readonly share?: string;
  readonly timeout?: number;
  readonly record?: string;
}

/** One day: people may leave a guest running. */
const maxLifeMs = 86_400_000;

const examples = `
In the guest MILLRACE_BACKEND is set, so that programs find the devices of
this host under their names.

Examples:
  millrace guest run --device soft-shm -- node my-program.js
  millrace guest run --device mlx5_0 --shared 1GiB -- node my-program.js
  millrace guest run --record calls.jsonl -- node my-program.js && millrace replay calls.jsonl`;

export function addGuestRun(guest: Command, { world, finish }: CommandContext): void {
  guest
    .command('run')
    .description('Boot a virtual machine, run a command in it that uses the RDMA devices of this host, and end it.')
    .usage('[options] -- <command> [arguments...]')
    .option('--backend <socket>', 'socket of a running backend (default: start one that ends with the guest)')
    .option('--name <name>', 'name of the guest, also shown by the backend', 'vm')
    .option('--device <name>', 'a device that the guest may use; may be repeated (default: all)', collect)
    .option(
      '--shared <size>',
      'memory for regions and queues of all its programs, a power of two',
      size,
      64 * 1024 ** 2,
    )
    .option(
      '--programs <number>',
      'how many programs may use devices at a time; each gets an equal part of --shared',
      number,
      4,
    )
    .option('--memory <MB>', 'memory of the guest', number, 1024)
    .option('--cpus <number>', 'processors of the guest', number, 2)
    .option('--share <folder>', 'a folder that the guest may write to, at the same path')
    .option('--timeout <seconds>', 'kill the command after so long', number)
    .option(
      '--record <file>',
      'record the verbs calls of its first program for millrace replay; those of the next go to FILE.2 and so on',
    )
    .argument('<command...>', 'the command and its arguments')
    .passThroughOptions()
    .addHelpText('after', examples)
    .action((words: readonly string[], options: Options) => finish(() => runInGuest(words, options, world)));
}

async function runInGuest(rawWords: readonly string[], options: Options, world: World): Promise<number> {
  const words = rawWords[0] === '--' ? rawWords.slice(1) : rawWords;
  if (words.length === 0) throw new UsageError('guest run: there is no command; give it after --');
  if (options.backend !== undefined && (options.device ?? options.record) !== undefined) {
    throw new UsageError('guest run: --device and --record do not go with --backend; give them to that backend');
  }
  const { backend, share, timeout, name } = options;
  await using resources = new AsyncDisposableStack();
  const wiring = resources.use(new QemuWiring({ sizeBytes: options.shared, ports: options.programs }));
  if (backend === undefined) {
    serveHere(wiring, options, resources);
  } else {
    registerMachine(backend, name, wiring.ends);
    closeEnds(wiring.ends);
  }
  const guest = resources.use(
    await Guest.boot({
      signal: world.signal,
      onProgress: (message) => void world.stderr.write(`${message} …\n`),
      limitMs: maxLifeMs,
      memoryMb: options.memory,
      cpus: options.cpus,
      name,
      sharing: wiring.sharing,
      ...(share !== undefined && { share: resolve(share) }),
    }),
  );
  wiring.close();
  const { status } = await guest.run(words, {
    isCaptured: false,
    signal: world.signal,
    env: { MILLRACE_BACKEND: 'qemu' },
    onOutput: (chunk, stream) => void world[stream].write(chunk),
    ...(timeout !== undefined && { timeoutMs: timeout * 1000 }),
  });
  return status;
}

/** A backend for this guest alone, on a socket that others do not find. */
function serveHere({ ends }: QemuWiring, { name, device, record }: Options, resources: AsyncDisposableStack): void {
  const folder = resources.adopt(mkdtempSync(join(tmpdir(), 'millrace-backend-')), (path) =>
    rmSync(path, { recursive: true, force: true }),
  );
  const backend = resources.use(
    Backend.start({
      socketPath: join(folder, 'guests'),
      ...(device !== undefined && { devices: device.map((each) => ({ name: each })) }),
      ...(record !== undefined && { record: resolve(record) }),
    }),
  );
  resources.use(new QemuMachine({ name, ends, serve: (spec) => void backend.serve(spec) }));
}

function collect(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, text];
}

function number(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value <= 0) throw new InvalidArgumentError('Give a whole number.');
  return value;
}

function size(text: string): number {
  const bytes = parseSize(text);
  const isPower = !Number.isNaN(bytes) && bytes >= 1024 ** 2 && Number.isInteger(Math.log2(bytes));
  if (!isPower) throw new InvalidArgumentError('Give a power of two from 1MiB on, as 64MiB or 1GiB.');
  return bytes;
}
