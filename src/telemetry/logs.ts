// The daemon's log: structured lines on stderr made from its diagnostics channels. JSON for
// machines, one-liners on a terminal.

import { isatty } from 'node:tty';
import { type DestinationStream, type Logger, pino } from 'pino';
import { type ConnectionEvent, type DaemonEvent, type LinkEvent, type PeerEvent, subscribe } from '../status/index.ts';
import { textLines } from './log-text.ts';

/** pino's levels. */
type LogLevel = 'fatal' | 'error' | 'warn' | 'info' | 'debug' | 'trace' | 'silent';

export interface LogsOptions {
  /** Default: `info`. Single connections are logged at `debug` only. */
  readonly level?: LogLevel;
  /** Default: `text` on a terminal, else `json`. */
  readonly format?: 'json' | 'text';
  /** In every JSON line, so that the logs of several daemons can be told apart. */
  readonly node?: string;
  /** Default: file descriptor 2. */
  readonly destination?: DestinationStream;
}

const STDERR = 2;

/** Writes each line at once, so that a process that ends suddenly leaves its last line. */
export class Logs implements Disposable {
  readonly logger: Logger;
  readonly #subscriptions = new DisposableStack();
  #connections: Disposable | undefined;

  constructor({ level = 'info', format, node, destination }: LogsOptions = {}) {
    const target = destination ?? stderrNow();
    const isText = (format ?? (destination === undefined && isatty(STDERR) ? 'text' : 'json')) === 'text';
    const base = node === undefined ? {} : { node };
    this.logger = pino(
      { level, base, timestamp: pino.stdTimeFunctions.isoTime, formatters: { level: (label) => ({ level: label }) } },
      isText ? textLines(target) : target,
    );
    const { logger } = this;
    this.#subscriptions.use(subscribe('peer', (event) => logPeer(logger, event)));
    this.#subscriptions.use(subscribe('link', (event) => logLink(logger, event)));
    this.#subscriptions.use(subscribe('daemon', (event) => logDaemon(logger, event)));
    this.#subscriptions.use(
      subscribe('error', ({ message, ...event }) => logger.error({ event: 'error', ...event }, message)),
    );
    this.#followConnections();
  }

  get level(): LogLevel {
    return this.logger.level as LogLevel;
  }

  set level(level: LogLevel) {
    this.logger.level = level;
    this.#followConnections();
  }

  close(): void {
    this.#connections?.[Symbol.dispose]();
    this.#connections = undefined;
    this.#subscriptions.dispose();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /**
   * A subscriber makes the daemon build an event for each connection, so this subscribes only while
   * they are logged.
   */
  #followConnections(): void {
    this.#connections?.[Symbol.dispose]();
    const { logger } = this;
    this.#connections = logger.isLevelEnabled('debug')
      ? subscribe('connection', (event) => logConnection(logger, event))
      : undefined;
  }
}

function stderrNow(): DestinationStream {
  const stream = pino.destination({ fd: STDERR, sync: true });
  // A log that nobody reads any more must not end the daemon.
  stream.on('error', () => {});
  return stream;
}

function logPeer(logger: Logger, event: PeerEvent): void {
  const fields = { event: 'peer', ...event };
  const words = `peer ${event.peer} (${event.address}) is ${withReason(event.state, event.reason)}`;
  if (event.state === 'down' || event.state === 'recovering') logger.warn(fields, words);
  else logger.info(fields, words);
}

function logLink(logger: Logger, event: LinkEvent): void {
  const fields = { event: 'link', ...event };
  const over = event.wire === '' ? '' : ` over ${event.wire}`;
  const words = `link ${event.link} to ${event.peer}${over} is ${withReason(event.state, event.reason)}`;
  if (event.state === 'down' || event.state === 'recovering') logger.warn(fields, words);
  else logger.info(fields, words);
}

function logConnection(logger: Logger, event: ConnectionEvent): void {
  const ends = event.direction === 'out' ? [event.local, event.remote] : [event.remote, event.local];
  const words = `${event.command} (${event.pid}) ${ends.join(' -> ')} ${withReason(event.what, event.reason)}`;
  logger.debug({ event: 'connection', ...event }, words);
}

function logDaemon(logger: Logger, event: DaemonEvent): void {
  // The node is in every line already.
  const { node: _, ...rest } = event;
  const fields = { event: 'daemon', ...rest };
  const words = `daemon ${event.instance} on ${event.node}: ${withReason(event.what, event.detail)}`;
  if (event.what === 'not-ready') logger.warn(fields, words);
  else logger.info(fields, words);
}

function withReason(word: string, reason: string): string {
  return reason === '' ? word : `${word}: ${reason}`;
}
