// Sends a file: waits for a receiver, asks which bytes it has, and streams the rest; if that
// breaks, waits for it again.

import { createHash, type Hash } from 'node:crypto';
import type { MillraceError } from '../../errors.ts';
import { readSecurity } from '../../tls/index.ts';
import { openSender, type Producer, VortexError } from '../index.ts';
import { abortable } from './abortable.ts';
import { Acceptor } from './acceptor.ts';
import type { Address } from './address.ts';
import type { Conversation } from './conversation.ts';
import { FileTransferError } from './file-transfer-error.ts';
import { hashPrefix, sumSoFar } from './prefix.ts';
import type { FileTransferSettings, Receipt } from './settings.ts';
import type { Source } from './source.ts';

export interface SendSettings extends FileTransferSettings {
  readonly address: Address;
  /** Called at the start, and again for each receiver. */
  readonly openSource: () => Promise<Source>;
  readonly blockBytes?: number | undefined;
}

/** Resolves when a receiver has the whole file under its final name. */
export async function sendFile(settings: SendSettings): Promise<Receipt> {
  const { signal, waitMs, onNews, timeoutMs } = settings;
  const security = await readSecurity(settings.tls);
  let { address } = settings;
  let deadline = new AbortController().signal;
  let lastError: unknown;
  // Opened before a receiver is waited for, so that a file that cannot be read is an error now.
  await using first = await settings.openSource();
  for (;;) {
    let conversation: Conversation;
    {
      const onRefused = (reason: string): void => onNews({ kind: 'refused', reason });
      const peerName = settings.tls?.peerName;
      using acceptor = await Acceptor.open({ address, security, peerName, timeoutMs, onRefused });
      if (lastError === undefined) onNews({ kind: 'listening', host: address.host, port: acceptor.port });
      // The stream uses the same port, and so does the next attempt.
      address = { host: address.host, port: acceptor.port };
      try {
        conversation = await acceptor.receiver(AbortSignal.any([signal, deadline]));
      } catch (error) {
        signal.throwIfAborted();
        throw deadline.aborted ? lastError : error;
      }
    }
    try {
      return await deliver({ ...settings, address }, first, conversation);
    } catch (error) {
      if (!isTheirs(error) || !first.isFile || waitMs === 0) throw error;
      lastError = error;
      deadline = AbortSignal.timeout(waitMs);
      onNews({ kind: 'broken', error, waitMs });
    }
  }
}

/** A file is opened again: it may have changed since the start. */
async function deliver(settings: SendSettings, first: Source, conversation: Conversation): Promise<Receipt> {
  try {
    if (!first.isFile) return await new Delivery(settings, first, conversation).run();
    await using source = await settings.openSource();
    return await new Delivery(settings, source, conversation).run();
  } catch (error) {
    conversation.fail(error);
    throw error;
  }
}

/**
 * Whether the problem is at the receiver or on the way: then the same file may get through at the
 * next attempt.
 */
function isTheirs(error: unknown): error is MillraceError {
  if (error instanceof VortexError) return true;
  if (!(error instanceof FileTransferError) || error.code !== 'MILLRACE_ERR_FILES_PEER') return false;
  // When bytes arrive wrong, a person has to find out why; another attempt would hide it.
  return error.peerCode !== 'MILLRACE_ERR_FILES_CHECKSUM';
}

/** One attempt with one receiver. */
class Delivery {
  readonly #settings: SendSettings;
  readonly #source: Source;
  readonly #conversation: Conversation;

  constructor(settings: SendSettings, source: Source, conversation: Conversation) {
    this.#settings = settings;
    this.#source = source;
    this.#conversation = conversation;
  }

  async run(): Promise<Receipt> {
    using conversation = this.#conversation;
    const { signal, onNews } = this.#settings;
    const { offer } = this.#source;
    conversation.send({ kind: 'offer', ...offer });
    const { bytes: haveBytes } = await conversation.expect('have', signal);
    if (haveBytes > (offer.sizeBytes ?? 0))
      throw protocolError(`it has ${haveBytes} bytes of a file that is not so long`);
    onNews({ kind: 'met', peer: conversation.peer, haveBytes });
    const hash = await this.#hashOfPrefix(haveBytes);
    const startBytes = hash === undefined ? 0 : haveBytes;
    if (hash === undefined) onNews({ kind: 'afresh', reason: 'what the receiver has is not how this file begins' });
    const { sizeBytes, sha256 } = await this.#stream(startBytes, hash ?? createHash('sha256'));
    await this.#source.check();
    conversation.send({ kind: 'sum', sizeBytes, sha256 });
    const { sha256: theirs } = await conversation.expect('kept', signal);
    if (theirs !== sha256) throw checksumError(sha256, theirs);
    return { path: undefined, peer: conversation.peer, sizeBytes, resumedBytes: startBytes, sha256 };
  }

  /** Undefined when the receiver's bytes are not those of the file. */
  async #hashOfPrefix(haveBytes: number): Promise<Hash | undefined> {
    if (haveBytes === 0) return createHash('sha256');
    const { signal, onNews } = this.#settings;
    const totalBytes = haveBytes;
    using _busy = this.#conversation.busy();
    const hash = await hashPrefix(this.#source, haveBytes, signal, (bytes) =>
      onNews({ kind: 'checking', bytes, totalBytes }),
    );
    const { sha256 } = await this.#conversation.expect('prefix', signal);
    return sha256 === sumSoFar(hash) ? hash : undefined;
  }

  async #stream(startBytes: number, hash: Hash): Promise<{ readonly sizeBytes: number; readonly sha256: string }> {
    const { address, device, strategy, timeoutMs, tls, blockBytes } = this.#settings;
    const { sizeBytes: wholeBytes } = this.#source.offer;
    const restBytes = wholeBytes === undefined ? undefined : wholeBytes - startBytes;
    const where = address.host === undefined ? address.port : { host: address.host, port: address.port };
    const onListening = (port: number): void => this.#conversation.send({ kind: 'stream', port, startBytes });
    const options = { device, strategy, timeoutMs, tls, blockBytes, onListening };
    await using stream = await this.#unlessLost((lost) => openSender(where, restBytes, { ...options, signal: lost }));
    try {
      const sizeBytes = await this.#pump(stream, startBytes, hash);
      return { sizeBytes, sha256: hash.digest('hex') };
    } catch (error) {
      const why = await this.#conversation.explain(error, stream);
      // Before the stream is closed, so that the receiver hears the reason, and not only that the
      // stream ended.
      this.#conversation.fail(why);
      throw why;
    }
  }

  /** Opens the stream, unless the receiver gives up, disconnects or takes too long meanwhile. */
  async #unlessLost<T>(open: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const [lost, isOpen] = [new AbortController(), new AbortController()];
    const { signal } = this.#settings;
    this.#conversation.expect('kept', isOpen.signal).then(
      () => lost.abort(protocolError('it sent kept before it fetched the stream')),
      (error: unknown) => lost.abort(error),
    );
    try {
      return await open(AbortSignal.any([signal, lost.signal]));
    } finally {
      isOpen.abort();
    }
  }

  /** Reads blocks from the source into the pool. Resolves to the size of the file. */
  async #pump(stream: Producer, startBytes: number, hash: Hash): Promise<number> {
    const { onNews } = this.#settings;
    const { sizeBytes: totalBytes } = this.#source.offer;
    const failing = new AbortController();
    // A receiver may disconnect while the pipe has no data: this has to end the wait for it.
    const done = stream.done();
    done.catch((error: unknown) => failing.abort(error));
    const signal = AbortSignal.any([this.#settings.signal, failing.signal]);
    const writer = stream.blocks();
    let position = startBytes;
    let previous: Uint8Array = new Uint8Array(0);
    let isAtEnd = position === totalBytes;
    while (!isAtEnd) {
      const block = await abortable(writer.next(), signal);
      const { bytes } = block;
      const filling = this.#source.fill(bytes, position, signal);
      // The previous block is being sent and does not change: only this loop writes to the pool.
      hash.update(previous);
      const got = await filling;
      if (totalBytes !== undefined && got < bytes.length) {
        await this.#source.check();
        throw new FileTransferError(
          'MILLRACE_ERR_FILES_CHANGED',
          `the file ended at ${position + got} of ${totalBytes} bytes`,
        );
      }
      signal.throwIfAborted();
      block.commit(got);
      previous = bytes.subarray(0, got);
      position += got;
      isAtEnd = totalBytes === undefined ? got < bytes.length : position === totalBytes;
      onNews({ kind: 'moving', bytes: position, totalBytes });
    }
    hash.update(previous);
    stream.finish();
    await abortable(done, this.#settings.signal);
    return position;
  }
}

function protocolError(what: string): VortexError {
  return new VortexError('MILLRACE_ERR_VORTEX_PROTOCOL', `the receiver broke the protocol: ${what}`);
}

export function checksumError(ours: string, theirs: string): FileTransferError {
  return new FileTransferError(
    'MILLRACE_ERR_FILES_CHECKSUM',
    `the checksum differs: the bytes here have sha256 ${ours}, those of the other side ${theirs}`,
  );
}
