// `millrace lab vm`: runs a command in a virtual machine with a kernel of its own, and ends with
// its exit status.

import { resolve } from 'node:path';
import { type Command, InvalidArgumentError } from 'commander';
import { UsageError } from '../errors.ts';
import { Guest, type GuestOptions } from '../lab/vm/index.ts';
import type { CommandContext } from './command.ts';
import type { World } from './world.ts';

interface VmOptions {
  readonly memory?: number;
  readonly cpus?: number;
  readonly rxe?: true;
  readonly share?: string;
  readonly pcap?: string;
  readonly timeout?: number;
}

/** One day: people may leave a guest running. */
const maxLifeMs = 86_400_000;

const examples = `
Examples:
  millrace lab vm run -- uname -a
  millrace lab vm run --rxe -- ibv_devinfo
  millrace lab vm run --share /srv/results -- sh -c 'dmesg > /srv/results/dmesg.txt'
  millrace lab vm run --pcap out.pcap -- ip neigh

The guest sees the files of this machine read-only; what it writes elsewhere is lost when it ends. The first run downloads a kernel.`;

export function addVm(lab: Command, { world, finish }: CommandContext): void {
  const vm = lab
    .command('vm')
    .description('Run commands in virtual machines with a kernel of their own.')
    .enablePositionalOptions();
  vm.command('run')
    .description('Boot a guest, run a command in it as root, and end it. The exit status is the command’s.')
    .usage('[options] -- <command> [arguments...]')
    .option('--memory <MB>', 'memory of the guest (default: 1024)', numberOf)
    .option('--cpus <number>', 'processors of the guest (default: 2)', numberOf)
    .option('--rxe', 'give the guest an RDMA device, rxe0, with the address 10.99.0.1')
    .option('--share <folder>', 'a folder that the guest may write to, at the same path')
    .option('--pcap <file>', 'give the guest a network card, eth0, and record its packets')
    .option('--timeout <seconds>', 'kill the command after so long', numberOf)
    .argument('<command...>', 'the command and its arguments')
    .passThroughOptions()
    .addHelpText('after', examples)
    .action((words: readonly string[], options: VmOptions) => finish(() => runInGuest(words, options, world)));
}

async function runInGuest(rawWords: readonly string[], options: VmOptions, world: World): Promise<number> {
  const words = rawWords[0] === '--' ? rawWords.slice(1) : rawWords;
  if (words.length === 0) throw new UsageError('lab vm run: there is no command; give it after --');
  const { timeout, pcap } = options;
  if (timeout !== undefined && !(timeout > 0))
    throw new UsageError(`lab vm run: the timeout is ${timeout} s; give more than 0`);
  await using guest = await Guest.boot(guestOptions(options, world));
  try {
    if (options.rxe === true) await guest.addRxe();
    const { status } = await guest.run(words, {
      isCaptured: false,
      signal: world.signal,
      onOutput: (chunk, stream) => void world[stream].write(chunk),
      ...(timeout === undefined ? {} : { timeoutMs: timeout * 1000 }),
    });
    return status;
  } finally {
    if (pcap !== undefined) guest.saveCapture(pcap);
  }
}

function guestOptions({ memory, cpus, share, pcap }: VmOptions, world: World): GuestOptions {
  return {
    signal: world.signal,
    onProgress: (message) => void world.stderr.write(`${message} …\n`),
    limitMs: maxLifeMs,
    ...(memory === undefined ? {} : { memoryMb: memory }),
    ...(cpus === undefined ? {} : { cpus }),
    ...(share === undefined ? {} : { share: resolve(share) }),
    ...(pcap === undefined ? {} : { network: {} }),
  };
}

function numberOf(text: string): number {
  const value = Number(text);
  if (text.trim() === '' || Number.isNaN(value)) throw new InvalidArgumentError('Give a number.');
  return value;
}
