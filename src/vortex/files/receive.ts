// Receives a file: dials the sender, says which bytes are here already, fetches the rest, and
// checks the whole.

import { createHash, type Hash } from 'node:crypto';
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { MillraceError, UsageError } from '../../errors.ts';
import { type ControlSecurity, dial, dialFailure, readSecurity } from '../../tls/index.ts';
import { type Consumer, openReceiver, VortexError } from '../index.ts';
import { abortable } from './abortable.ts';
import { type Address, addressText } from './address.ts';
import { Conversation } from './conversation.ts';
import { checkTarget, Part } from './part.ts';
import { hashPrefix, sumSoFar } from './prefix.ts';
import type { FileOffer, MessageOfKind } from './protocol.ts';
import { checksumError } from './send.ts';
import type { FileTransferSettings, Receipt } from './settings.ts';
import { writeToPipe } from './sink.ts';

const RETRY_MS = 300;

export interface ReceiveSettings extends FileTransferSettings {
  readonly address: Address & { readonly host: string };
  /** A file, a folder for a file with the sender's name (undefined: this folder), or a pipe. */
  readonly target: string | undefined | Writable;
  /** Replace a file that exists. */
  readonly force: boolean;
}

/** Resolves when the file has its name. */
export async function receiveFile(settings: ReceiveSettings): Promise<Receipt> {
  const { target, signal, waitMs, onNews } = settings;
  const security = await readSecurity(settings.tls);
  if (typeof target === 'string' && !(await isFolder(target))) await checkTarget(target, settings.force);
  let deadlineMs = performance.now() + waitMs;
  for (let isFirst = true; ; isFirst = false) {
    let hasMet = false;
    try {
      using conversation = new Conversation(await connectTo(settings, security), 'sender', settings.timeoutMs);
      hasMet = true;
      return await new Fetch(settings, conversation).run();
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

/**
 * Whether another attempt a little later may succeed, because the sender was not there or has gone.
 */
function isPassing(error: unknown): error is MillraceError {
  return error instanceof VortexError || (error instanceof MillraceError && error.code === 'MILLRACE_ERR_NOT_RUNNING');
}

async function connectTo(settings: ReceiveSettings, security: ControlSecurity): ReturnType<typeof connected> {
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
    throw new MillraceError(code, `connect to the sender at ${addressText(settings.address)}: ${why}`, {
      cause: error,
    });
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
  readonly #conversation: Conversation;

  constructor(settings: ReceiveSettings, conversation: Conversation) {
    this.#settings = settings;
    this.#conversation = conversation;
  }

  async run(): Promise<Receipt> {
    const conversation = this.#conversation;
    const { signal, target } = this.#settings;
    try {
      conversation.send({ kind: 'hello' });
      const offer = await conversation.expect('offer', signal);
      if (typeof target === 'object') return await this.#toPipe(offer, target);
      return await this.#toFile(offer, await fileOf(target, offer));
    } catch (error) {
      conversation.fail(error);
      throw error;
    }
  }

  async #toPipe(offer: FileOffer, pipe: Writable): Promise<Receipt> {
    const conversation = this.#conversation;
    conversation.send({ kind: 'have', bytes: 0 });
    this.#settings.onNews({ kind: 'met', peer: conversation.peer, haveBytes: 0 });
    const hash = createHash('sha256');
    const start = await conversation.expect('stream', this.#settings.signal);
    const sizeBytes = await this.#stream(start, offer, hash, (bytes) => writeToPipe(pipe, bytes));
    const sha256 = await this.#compare(sizeBytes, hash);
    conversation.end({ kind: 'kept', sha256 });
    return { path: undefined, peer: conversation.peer, sizeBytes, resumedBytes: 0, sha256 };
  }

  async #toFile(offer: FileOffer, target: string): Promise<Receipt> {
    const conversation = this.#conversation;
    await using part = await Part.open({ target, offer, force: this.#settings.force });
    try {
      const { hash, start } = await this.#begin(part);
      const sizeBytes = await this.#stream(start, offer, hash, (bytes, position) => part.write(bytes, position));
      const sha256 = await this.#compare(sizeBytes, hash);
      {
        // Syncing may take long for what the page cache has accepted at once.
        using _busy = conversation.busy();
        await part.publish();
      }
      conversation.end({ kind: 'kept', sha256 });
      return { path: target, peer: conversation.peer, sizeBytes, resumedBytes: start.startBytes, sha256 };
    } catch (error) {
      // A part that cannot be continued, or is wrong, is removed.
      const isWrong = error instanceof MillraceError && error.code === 'MILLRACE_ERR_FILES_CHECKSUM';
      if (isWrong || offer.sizeBytes === undefined) await part.discard();
      throw error;
    }
  }

  /**
   * Both sides compare the checksum of the bytes that are here with that of the file's beginning.
   */
  async #begin(part: Part): Promise<{ hash: Hash; start: MessageOfKind<'stream'> }> {
    const { signal, onNews } = this.#settings;
    const { haveBytes } = part;
    const conversation = this.#conversation;
    if (part.staleness !== undefined) onNews({ kind: 'afresh', reason: part.staleness });
    conversation.send({ kind: 'have', bytes: haveBytes });
    onNews({ kind: 'met', peer: conversation.peer, haveBytes });
    let hash = createHash('sha256');
    if (haveBytes > 0) {
      using _busy = conversation.busy();
      hash = await hashPrefix(part, haveBytes, signal, (bytes) =>
        onNews({ kind: 'checking', bytes, totalBytes: haveBytes }),
      );
      conversation.send({ kind: 'prefix', sha256: sumSoFar(hash) });
    }
    const start = await conversation.expect('stream', signal);
    const { startBytes } = start;
    if (startBytes === haveBytes) return { hash, start };
    if (startBytes !== 0) throw protocolError(`it starts at ${startBytes}, and ${haveBytes} bytes are here`);
    onNews({ kind: 'afresh', reason: 'what is here is not how the file at the sender begins' });
    await part.empty();
    return { hash: createHash('sha256'), start };
  }

  /** Resolves to the size of the file. */
  async #stream(
    { port, startBytes }: MessageOfKind<'stream'>,
    { sizeBytes: wholeBytes }: FileOffer,
    hash: Hash,
    write: (bytes: Uint8Array, position: number) => Promise<void>,
  ): Promise<number> {
    const { device, strategy, timeoutMs, tls, signal } = this.#settings;
    const options = { device, strategy, timeoutMs, tls, signal };
    const opened = openReceiver(this.#conversation.peer, port, options);
    await using stream = await opened.catch((error: unknown) => this.#giveUp(error, undefined));
    try {
      const { sizeBytes } = stream;
      if (wholeBytes !== undefined && sizeBytes !== wholeBytes - startBytes) {
        throw protocolError(`a stream of ${sizeBytes} bytes, where ${wholeBytes - startBytes} are missing`);
      }
      return await this.#pump(stream, startBytes, wholeBytes, hash, write);
    } catch (error) {
      return await this.#giveUp(error, stream);
    }
  }

  /**
   * Called before the stream is closed, so that the sender hears the reason, and not only that the
   * stream ended.
   */
  async #giveUp(error: unknown, stream: Consumer | undefined): Promise<never> {
    const why = await this.#conversation.explain(error, stream);
    this.#conversation.fail(why);
    throw why;
  }

  /** Writes blocks from the pool to the disk, and hashes them meanwhile. */
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
    const sum = await this.#conversation.expect('sum', this.#settings.signal);
    const sha256 = hash.digest('hex');
    if (sum.sha256 !== sha256 || sum.sizeBytes !== sizeBytes) throw checksumError(sha256, sum.sha256);
    return sha256;
  }
}

function protocolError(message: string): VortexError {
  return new VortexError('MILLRACE_ERR_VORTEX_PROTOCOL', `the sender broke the protocol: ${message}`);
}

async function isFolder(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  return found?.isDirectory() ?? false;
}

async function fileOf(target: string | undefined, { name }: FileOffer): Promise<string> {
  if (target !== undefined && !(await isFolder(target))) return target;
  if (name === undefined) throw new UsageError('the sender sends a pipe, which has no name: say which file to write');
  // A peer may not choose a hidden name.
  if (name.startsWith('.')) throw new UsageError(`the sender calls its file ${name}: say which file to write`);
  return join(target ?? '.', name);
}
