// Receiving a file: calls the sender, says what is here already, takes the rest, and gives it its name when it is whole and right.

import { createHash, type Hash } from 'node:crypto';
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { MillraceError, UsageError } from '../../errors.ts';
import { type ControlSecurity, dial, dialFailure } from '../../tls/index.ts';
import { type Consumer, openReceiver, VortexError } from '../index.ts';
import { abortable } from './abortable.ts';
import { type Address, addressText } from './address.ts';
import { Link } from './link.ts';
import { checkTarget, Part } from './part.ts';
import { hashPrefix, sumSoFar } from './prefix.ts';
import type { MessageOf, Parcel } from './protocol.ts';
import { checksumError } from './send.ts';
import { type CourierSettings, type Receipt, securityOf } from './settings.ts';
import { writeToPipe } from './sink.ts';

const RETRY_MS = 300;

export interface ReceiveSettings extends CourierSettings {
  readonly address: Address & { readonly host: string };
  /** A file, a folder for a file with the sender's name (undefined: this folder), or a pipe. */
  readonly target: string | undefined | Writable;
  /** Replace a file that exists. */
  readonly force: boolean;
}

/** Resolves when the file has its name. */
export async function receiveFile(settings: ReceiveSettings): Promise<Receipt> {
  const { target, signal, waitMs, onNews } = settings;
  const security = await securityOf(settings.tls);
  if (typeof target === 'string' && !(await isFolder(target))) await checkTarget(target, settings.force);
  let deadlineMs = performance.now() + waitMs;
  for (let isFirst = true; ; isFirst = false) {
    let hasMet = false;
    try {
      using link = new Link(await call(settings, security), 'sender', settings.timeoutMs);
      hasMet = true;
      return await new Fetch(settings, link).run();
    } catch (error) {
      signal.throwIfAborted();
      const canGoOn = isPassing(error) && (!hasMet || typeof target !== 'object');
      if (hasMet) deadlineMs = performance.now() + waitMs;
      if (!canGoOn || performance.now() + RETRY_MS > deadlineMs) throw error;
      if (isFirst || hasMet) onNews({ kind: 'broken', error, waitMs });
      await sleep(RETRY_MS, undefined, { signal });
    }
  }
}

/** The sender may be there, or there again, a little later. */
function isPassing(error: unknown): error is MillraceError {
  return error instanceof VortexError || (error instanceof MillraceError && error.code === 'MILLRACE_ERR_NOT_RUNNING');
}

async function call(settings: ReceiveSettings, security: ControlSecurity): ReturnType<typeof connected> {
  const limit = AbortSignal.timeout(settings.timeoutMs);
  try {
    return await connected(settings, security, AbortSignal.any([settings.signal, limit]));
  } catch (error) {
    settings.signal.throwIfAborted();
    const { reason, isFault } = dialFailure(error as NodeJS.ErrnoException);
    const refused = /ECONNREFUSED/.test(reason)
      ? 'ECONNREFUSED (nobody sends there, or it is busy with another receiver)'
      : reason;
    const why = limit.aborted ? 'it does not answer' : refused;
    const code = isFault && !limit.aborted ? 'MILLRACE_ERR_FAILED' : 'MILLRACE_ERR_NOT_RUNNING';
    throw new MillraceError(code, `call the sender at ${addressText(settings.address)}: ${why}`, { cause: error });
  }
}

async function connected(
  { address, tls }: ReceiveSettings,
  security: ControlSecurity,
  signal: AbortSignal,
): Promise<ReturnType<typeof dial>['socket']> {
  const { socket, ready } = dial({ ...address, name: tls?.peerName }, security, undefined);
  try {
    await once(socket, ready, { signal });
    return socket;
  } catch (error) {
    socket.on('error', () => {});
    socket.destroy();
    throw error;
  }
}

/** One attempt with a sender that has answered. */
class Fetch {
  readonly #settings: ReceiveSettings;
  readonly #link: Link;

  constructor(settings: ReceiveSettings, link: Link) {
    this.#settings = settings;
    this.#link = link;
  }

  async run(): Promise<Receipt> {
    const link = this.#link;
    const { signal, target } = this.#settings;
    try {
      link.send({ kind: 'hello' });
      const parcel = await link.expect('parcel', signal);
      if (typeof target === 'object') return await this.#toPipe(parcel, target);
      return await this.#toFile(parcel, await fileOf(target, parcel));
    } catch (error) {
      link.fail(error);
      throw error;
    }
  }

  async #toPipe(parcel: Parcel, pipe: Writable): Promise<Receipt> {
    const link = this.#link;
    link.send({ kind: 'have', bytes: 0 });
    this.#settings.onNews({ kind: 'met', peer: link.peer, haveBytes: 0 });
    const hash = createHash('sha256');
    const offer = await link.expect('stream', this.#settings.signal);
    const sizeBytes = await this.#stream(offer, parcel, hash, (bytes) => writeToPipe(pipe, bytes));
    const sha256 = await this.#compare(sizeBytes, hash);
    link.end({ kind: 'kept', sha256 });
    return { path: undefined, peer: link.peer, sizeBytes, resumedBytes: 0, sha256 };
  }

  async #toFile(parcel: Parcel, target: string): Promise<Receipt> {
    const link = this.#link;
    await using part = await Part.open({ target, parcel, force: this.#settings.force });
    try {
      const { startBytes, hash, offer } = await this.#begin(part);
      const sizeBytes = await this.#stream(offer, parcel, hash, (bytes, position) => part.write(bytes, position));
      const sha256 = await this.#compare(sizeBytes, hash);
      {
        // A disk may take long for what it has accepted at once.
        using _busy = link.busy();
        await part.publish();
      }
      link.end({ kind: 'kept', sha256 });
      return { path: target, peer: link.peer, sizeBytes, resumedBytes: startBytes, sha256 };
    } catch (error) {
      // What cannot be continued, or is wrong, is in nobody's way.
      const isWrong = error instanceof MillraceError && error.code === 'MILLRACE_ERR_COURIER_CHECKSUM';
      if (isWrong || parcel.sizeBytes === undefined) await part.discard();
      throw error;
    }
  }

  /** Both sides find out whether what is here is what the file begins with. */
  async #begin(part: Part): Promise<{ startBytes: number; hash: Hash; offer: MessageOf<'stream'> }> {
    const { signal, onNews } = this.#settings;
    const { haveBytes } = part;
    const link = this.#link;
    if (part.staleness !== undefined) onNews({ kind: 'afresh', reason: part.staleness });
    link.send({ kind: 'have', bytes: haveBytes });
    onNews({ kind: 'met', peer: link.peer, haveBytes });
    let hash = createHash('sha256');
    if (haveBytes > 0) {
      using _busy = link.busy();
      hash = await hashPrefix(part, haveBytes, signal, (bytes) =>
        onNews({ kind: 'checking', bytes, totalBytes: haveBytes }),
      );
      link.send({ kind: 'prefix', sha256: sumSoFar(hash) });
    }
    const offer = await link.expect('stream', signal);
    const { startBytes } = offer;
    if (startBytes === haveBytes) return { startBytes, hash, offer };
    if (startBytes !== 0) throw brokenRules(`it starts at ${startBytes}, and ${haveBytes} bytes are here`);
    onNews({ kind: 'afresh', reason: 'what is here is not how the file at the sender begins' });
    await part.empty();
    return { startBytes, hash: createHash('sha256'), offer };
  }

  /** Returns how long the file is. */
  async #stream(
    { port, startBytes }: MessageOf<'stream'>,
    { sizeBytes: wholeBytes }: Parcel,
    hash: Hash,
    write: (bytes: Uint8Array, position: number) => Promise<void>,
  ): Promise<number> {
    const { device, strategy, timeoutMs, tls, signal } = this.#settings;
    const options = { device, strategy, timeoutMs, tls, signal };
    const opened = openReceiver(this.#link.peer, port, options);
    await using stream = await opened.catch((error: unknown) => this.#giveUp(error, undefined));
    try {
      const { sizeBytes } = stream;
      if (wholeBytes !== undefined && sizeBytes !== wholeBytes - startBytes) {
        throw brokenRules(`a stream of ${sizeBytes} bytes, where ${wholeBytes - startBytes} are missing`);
      }
      return await this.#pump(stream, startBytes, wholeBytes, hash, write);
    } catch (error) {
      return await this.#giveUp(error, stream);
    }
  }

  /** Before the stream is closed: the sender shall hear the reason, and not only that it has ended. */
  async #giveUp(error: unknown, stream: Consumer | undefined): Promise<never> {
    const why = await this.#link.explain(error, stream);
    this.#link.fail(why);
    throw why;
  }

  /** From the pool straight to the disk; the sum is taken meanwhile. */
  async #pump(
    stream: Consumer,
    startBytes: number,
    totalBytes: number | undefined,
    hash: Hash,
    write: (bytes: Uint8Array, position: number) => Promise<void>,
  ): Promise<number> {
    const { signal, onNews } = this.#settings;
    const reader = stream.blocks();
    let position = startBytes;
    for (;;) {
      const block = await abortable(reader.next(), signal);
      if (block === undefined) break;
      const { bytes } = block;
      const { length } = bytes;
      const writing = write(bytes, position);
      hash.update(bytes);
      await writing;
      block.release();
      position += length;
      onNews({ kind: 'moving', bytes: position, totalBytes });
    }
    await abortable(stream.done(), signal);
    return position;
  }

  async #compare(sizeBytes: number, hash: Hash): Promise<string> {
    const sum = await this.#link.expect('sum', this.#settings.signal);
    const sha256 = hash.digest('hex');
    if (sum.sha256 !== sha256 || sum.sizeBytes !== sizeBytes) throw checksumError(sha256, sum.sha256);
    return sha256;
  }
}

function brokenRules(message: string): VortexError {
  return new VortexError('MILLRACE_ERR_VORTEX_PROTOCOL', `the sender broke the rules: ${message}`);
}

async function isFolder(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  return found?.isDirectory() ?? false;
}

async function fileOf(target: string | undefined, { name }: Parcel): Promise<string> {
  if (target !== undefined && !(await isFolder(target))) return target;
  if (name === undefined) throw new UsageError('the sender sends a pipe, which has no name: say which file to write');
  // A name that a listing does not show is not for a stranger to choose.
  if (name.startsWith('.')) throw new UsageError(`the sender calls its file ${name}: say which file to write`);
  return join(target ?? '.', name);
}
