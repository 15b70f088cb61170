// `millrace guest run`: a command in a virtual machine that has no RDMA device, and uses those of this machine through a backend.

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

/** A day: people may leave a guest running. */
const maxLifeMs = 86_400_000;

const examples = `
In the guest MILLRACE_BACKEND is set, so that programs find the devices of
this machine under their names; nothing else changes for them.

Examples:
  millrace guest run --device soft-shm -- node my-program.js
  millrace guest run --device mlx5_0 --shared 1GiB -- node my-program.js
  millrace guest run --record calls.jsonl -- node my-program.js && millrace replay calls.jsonl`;

export function addGuestRun(guest: Command, { world, finish }: CommandContext): void {
  guest
    .command('run')
    .description('Boot a virtual machine without RDMA, run a command in it on this machine’s devices, and end it.')
    .usage('[options] -- <command> [arguments...]')
    .option('--backend <socket>', 'of a backend that runs already (default: one of its own, which ends with it)')
    .option('--name <name>', 'of the guest, and in the backend’s lists', 'vm')
    .option('--device <name>', 'a device that it may use; more than once (default: all)', collect)
    .option(
      '--shared <size>',
      'memory for regions and queues of all its programs, a power of two',
      size,
      64 * 1024 ** 2,
    )
    .option('--programs <number>', 'programs that use devices at a time; each has an equal part of that', number, 4)
    .option('--memory <MB>', 'of the guest', number, 1024)
    .option('--cpus <number>', 'of the guest', number, 2)
    .option('--share <folder>', 'a folder the guest may write to, at the same path')
    .option('--timeout <seconds>', 'for the command; it is killed then', number)
    .option(
      '--record <file>',
      'all verbs calls of its first program, for millrace replay; of the next, to FILE.2 and so on',
    )
    .argument('<command...>')
    .passThroughOptions()
    .addHelpText('after', examples)
    .action((words: readonly string[], options: Options) => finish(() => runInGuest(words, options, world)));
}

async function runInGuest(rawWords: readonly string[], options: Options, world: World): Promise<number> {
  const words = rawWords[0] === '--' ? rawWords.slice(1) : rawWords;
  if (words.length === 0) throw new UsageError('guest run: no command after --');
  if (options.backend !== undefined && (options.device ?? options.record) !== undefined) {
    throw new UsageError('guest run: --device and --record are the business of the backend that --backend names');
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

/** A backend for this guest alone. Nobody else is to find it: the guest comes by its own way. */
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
