// The JavaScript stack of a thread that does not cooperate: V8's debugger interrupts it, whatever
// its script does, tells where it is and lets it go on. A thread that is not in JavaScript, but in
// a call of the system or of C, answers only when it comes back: kernel-place.ts tells of that one.
//
// A signal handler in C would need V8's internals to name frames of scripts, and the profiler does
// not know a function that never returns.

import { type Debugger, Session } from 'node:inspector';
import type { Worker } from 'node:worker_threads';

const MAX_FRAMES = 12;

/** What the debugger of a worker says, in the words of its protocol. */
type FromWorker =
  | { readonly method: 'Debugger.scriptParsed'; readonly params: Debugger.ScriptParsedEventDataType }
  | { readonly method: 'Debugger.paused'; readonly params: Debugger.PausedEventDataType }
  | { readonly method?: undefined };

/**
 * Frames of a worker, the innermost first; none when it does not answer in time. For its parent.
 */
export async function stackOfWorker(worker: Worker, timeoutMs: number): Promise<readonly string[]> {
  if (worker.threadId < 0) return [];
  const session = new Session();
  session.connect();
  const send = (sessionId: string, method: string): void =>
    session.post('NodeWorker.sendMessageToWorker', { sessionId, message: JSON.stringify({ id: 1, method }) });
  const found = new FoundStack(() => session.disconnect());
  worker.once('exit', () => found.close());
  session.on('NodeWorker.attachedToWorker', ({ params: { sessionId, workerInfo } }) => {
    // The id there is another one, of the inspector's own.
    if (!workerInfo.title.startsWith(`[worker ${worker.threadId}]`)) return;
    send(sessionId, 'Debugger.enable');
    send(sessionId, 'Debugger.pause');
  });
  session.on('NodeWorker.receivedMessageFromWorker', ({ params: { sessionId, message } }) => {
    const heard = JSON.parse(message) as FromWorker;
    if (heard.method === 'Debugger.scriptParsed') found.script(heard.params);
    if (heard.method !== 'Debugger.paused') return;
    send(sessionId, 'Debugger.resume');
    found.paused(heard.params);
  });
  session.post('NodeWorker.enable', { waitForDebuggerOnStart: false });
  return found.within(timeoutMs);
}

/** The same of the main thread. For its workers. */
export async function stackOfMain(timeoutMs: number): Promise<readonly string[]> {
  const session = new Session();
  session.connectToMainThread();
  const found = new FoundStack(() => session.disconnect());
  session.on('Debugger.scriptParsed', ({ params }) => found.script(params));
  session.on('Debugger.paused', ({ params }) => {
    session.post('Debugger.resume');
    found.paused(params);
  });
  session.post('Debugger.enable');
  session.post('Debugger.pause');
  return found.within(timeoutMs);
}

/**
 * What the debugger has told. It stays connected until the thread has paused, however late that is:
 * otherwise the thread would wait for ever for the order to go on.
 */
class FoundStack {
  readonly #files = new Map<string, string>();
  readonly #frames = Promise.withResolvers<readonly string[]>();
  #disconnect: (() => void) | undefined;

  constructor(disconnect: () => void) {
    this.#disconnect = disconnect;
  }

  script({ scriptId, url }: Pick<Debugger.ScriptParsedEventDataType, 'scriptId' | 'url'>): void {
    this.#files.set(scriptId, url.slice(url.lastIndexOf('/') + 1));
  }

  paused({ callFrames }: Pick<Debugger.PausedEventDataType, 'callFrames'>): void {
    const frames = callFrames.slice(0, MAX_FRAMES).map(({ functionName, location: { scriptId, lineNumber } }) => {
      return `${functionName || '(anonymous)'} (${this.#files.get(scriptId) ?? '?'}:${lineNumber + 1})`;
    });
    this.#frames.resolve(frames);
    this.close();
  }

  async within(timeoutMs: number): Promise<readonly string[]> {
    const timer = setTimeout(() => this.#frames.resolve([]), timeoutMs);
    const frames = await this.#frames.promise;
    clearTimeout(timer);
    return frames;
  }

  close(): void {
    this.#disconnect?.();
    this.#disconnect = undefined;
  }
}
