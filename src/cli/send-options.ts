// The options that `millrace send` and `millrace recv` share, and how both report what happens.

import { type Command, InvalidArgumentError, Option } from 'commander';
import { UsageError } from '../errors.ts';
import type { FileTransferSettings, News, Receipt } from '../vortex/files/index.ts';
import { type Strategy, strategies } from '../vortex/index.ts';
import { wireOfDevice } from '../vortex/net/index.ts';
import { ageText, bytesText, rateText } from './figures.ts';
import { painter } from './paint.ts';
import { Progress } from './progress.ts';
import type { World } from './world.ts';

export interface FileTransferFlags {
  readonly transport?: string;
  readonly strategy?: Strategy;
  readonly timeout: number;
  readonly wait: number;
  readonly tlsCa?: string;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  readonly tlsCrl?: string;
  readonly peerName?: string;
  readonly quiet?: boolean;
  readonly json?: boolean;
}

export function addFileTransferOptions(command: Command, waitSeconds: number, waitText: string): Command {
  return command
    .option('--transport <name>', 'tcp, or an RDMA device: soft-shm, soft-roce, soft-tcp, mlx5_0 (see millrace dev)')
    .addOption(new Option('--strategy <name>', 'how blocks go over RDMA').choices(strategies))
    .option('--timeout <seconds>', 'give up when the other side is silent for so long', secondsFrom(0.1), 10)
    .option('--wait <seconds>', waitText, secondsFrom(0), waitSeconds)
    .option('--tls-ca <file>', 'the authority of both certificates; both sides must then show theirs')
    .option('--tls-cert <file>', 'certificate of this side')
    .option('--tls-key <file>', 'key of that certificate')
    .option('--tls-crl <file>', 'revocation lists of that authority (default: nothing is revoked)')
    .option('--peer-name <name>', "name in the other side's certificate (default: any name of that authority)")
    .option('-q, --quiet', 'print only errors')
    .option('--json', 'print one JSON document at the end');
}

/** The settings that both sides have. */
export function fileTransferSettings(
  flags: FileTransferFlags,
  world: World,
  onNews: (news: News) => void,
): FileTransferSettings {
  const { transport, strategy, timeout, wait, tlsCa: ca, tlsCert: cert, tlsKey: key, tlsCrl: crl, peerName } = flags;
  const device = transport === 'tcp' ? undefined : transport;
  // Checked before anything waits for the other side.
  if (device !== undefined) wireOfDevice(device);
  const common = { device, strategy, timeoutMs: timeout * 1000, waitMs: wait * 1000, signal: world.signal, onNews };
  if ([ca, cert, key, crl, peerName].every((each) => each === undefined)) return common;
  if (ca === undefined || cert === undefined || key === undefined) {
    throw new UsageError('TLS needs --tls-ca, --tls-cert and --tls-key; give all three');
  }
  return { ...common, tls: { ca, cert, key, crl, peerName } };
}

/** Reports on standard error what happens. */
export class Talk implements Disposable {
  readonly #world: World;
  readonly #verb: string;
  readonly #isQuiet: boolean;
  readonly #progress: Progress;
  readonly #startMs: number;
  #movingMs: number | undefined;

  constructor(world: World, verb: 'sending' | 'receiving', { quiet = false, json = false }: FileTransferFlags) {
    this.#world = world;
    this.#verb = verb;
    this.#isQuiet = quiet || json;
    this.#progress = new Progress({ output: world.stderr, nowMs: world.nowMs, isQuiet: this.#isQuiet });
    this.#startMs = world.nowMs();
  }

  hear(news: News): void {
    switch (news.kind) {
      case 'listening':
        break;
      case 'refused':
        this.say(`a receiver was refused: ${news.reason}`);
        break;
      case 'met':
        this.#movingMs = this.#world.nowMs();
        if (news.haveBytes > 0) this.say(`${bytesText(news.haveBytes)} were received before; checking them`);
        break;
      case 'checking':
        this.#progress.update('checking', news.bytes, news.totalBytes);
        break;
      case 'moving':
        this.#progress.update(this.#verb, news.bytes, news.totalBytes);
        break;
      case 'afresh':
        this.say(`starting from the beginning: ${news.reason}`);
        break;
      case 'broken':
        this.say(`${news.error.message}; waiting up to ${news.waitMs / 1000} s for the other side`);
    }
  }

  say(text: string): void {
    if (this.#isQuiet) return;
    this.#progress.clear();
    this.#world.stderr.write(`${text}\n`);
  }

  /** Prints the last line, or the JSON document. */
  end(what: string, receipt: Receipt, flags: FileTransferFlags): void {
    this.#progress.clear();
    const { sizeBytes, resumedBytes, sha256 } = receipt;
    const milliseconds = this.#world.nowMs() - (this.#movingMs ?? this.#startMs);
    const bytesPerSecond = ((sizeBytes - resumedBytes) / Math.max(1, milliseconds)) * 1000;
    if (flags.json) {
      const document = { v: 1, role: this.#verb, ...receipt, seconds: milliseconds / 1000, bytesPerSecond };
      this.#world.stdout.write(`${JSON.stringify(document)}\n`);
      return;
    }
    const resumed = resumedBytes === 0 ? '' : ` (${bytesText(resumedBytes)} of it were received before)`;
    const paint = painter(this.#world.stderr, this.#world.env);
    const rate = `${timeText(milliseconds)}, ${rateText(bytesPerSecond)}`;
    this.say(`${paint('green', what)} ${bytesText(sizeBytes)}${resumed} in ${rate}, sha256 ${sha256}`);
  }

  [Symbol.dispose](): void {
    this.#progress.clear();
  }
}

function timeText(milliseconds: number): string {
  return milliseconds < 60_000 ? `${(milliseconds / 1000).toFixed(1)} s` : ageText(milliseconds);
}

function secondsFrom(least: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (text.trim() !== '' && value >= least && value <= 86_400) return value;
    throw new InvalidArgumentError(`Give a number of seconds from ${least} to 86400.`);
  };
}
