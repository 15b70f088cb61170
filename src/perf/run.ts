// One perf run, from connecting to the figures. The client chooses the parameters and measures.

import { MillraceError } from '../errors.ts';
import { measureBandwidth, receiveMessages } from './bandwidth.ts';
import { accept, type Conversation, dial } from './conversation.ts';
import { answerRoundTrips, measureLatency } from './latency.ts';
import { Pace } from './pace.ts';
import { checkParameters, decodeParameters, isLatency, type PerfParameters, type PerfTest } from './parameters.ts';
import { bandwidthOf, latencyOf, type PerfDocument } from './report.ts';
import { connectSetup, openPerfDevice, type PerfSetup } from './setup.ts';

interface PerfOptions {
  readonly test: PerfTest;
  readonly port: number;
  readonly device?: string | undefined;
  readonly signal: AbortSignal;
  /** A line of progress: what the run waits for, who is connected. */
  readonly say: (line: string) => void;
}

interface ClientOptions extends PerfOptions, Omit<PerfParameters, 'test' | 'transport'> {
  readonly host: string;
}

export async function runClient(options: ClientOptions): Promise<PerfDocument> {
  const { test, host, port, sizeBytes, iterations, durationS, queuePairs, txDepth, signal, say } = options;
  const asked = { test, sizeBytes, iterations, durationS, queuePairs, txDepth };
  checkParameters({ ...asked, transport: '' });
  using conversation = await dial(host, port, test, signal);
  using undo = new DisposableStack();
  const device = undo.use(openPerfDevice(options.device, conversation));
  const parameters: PerfParameters = { ...asked, transport: device.info.transport };
  conversation.tell({ v: 1, ...parameters });
  checkAccepted(await conversation.hear());
  using setup = await connectSetup(device, parameters, conversation);
  sayEndpoints(setup, say);
  const pace = new Pace(() => conversation.check());
  const figures = isLatency(test)
    ? latencyOf(await measureLatency(setup, pace))
    : bandwidthOf(await measureBandwidth(setup, pace));
  conversation.tell({ done: true });
  await conversation.hear();
  return { v: 1, role: 'client', device: device.name, parameters, ...figures };
}

export async function runServer(options: PerfOptions): Promise<PerfDocument> {
  const { test, port, signal, say } = options;
  using conversation = await accept(port, signal, (listening) => say(`waiting for a client on port ${listening}`));
  using undo = new DisposableStack();
  const device = undo.use(openPerfDevice(options.device, conversation));
  const own = { test, transport: device.info.transport };
  const parameters = await hearParameters(conversation, own);
  using setup = await connectSetup(device, parameters, conversation);
  sayEndpoints(setup, say);
  const iterations = await serve(setup, conversation);
  conversation.tell({ bye: true });
  return { v: 1, role: 'server', device: device.name, parameters, iterations };
}

/** Invalid parameters are an error here, and are told to the client. */
async function hearParameters(
  conversation: Conversation,
  own: Pick<PerfParameters, 'test' | 'transport'>,
): Promise<PerfParameters> {
  const said = await conversation.hear();
  try {
    const parameters = decodeParameters(said, own);
    conversation.tell({ accepted: true });
    return parameters;
  } catch (error) {
    conversation.tell({ refused: error instanceof Error ? error.message : String(error) });
    throw error;
  }
}

function checkAccepted(answer: unknown): void {
  if (typeof answer === 'object' && answer !== null && 'accepted' in answer) return;
  const reason = typeof answer === 'object' && answer !== null && 'refused' in answer ? answer.refused : 'no reason';
  // The peer's text is shown short and on one line.
  const shown = JSON.stringify(reason).slice(0, 200);
  throw new MillraceError('MILLRACE_ERR_FAILED', `perf: the server refused: ${shown}`);
}

/**
 * Resolves when the client tells that it is done, to the number of messages that were received
 * here.
 */
async function serve(setup: PerfSetup, conversation: Conversation): Promise<number> {
  let isOver = false;
  const over = conversation.hearEventually().then((said) => {
    if (typeof said !== 'object' || said === null || !('done' in said)) {
      throw new MillraceError(
        'MILLRACE_ERR_FAILED',
        'perf: protocol error: the client sent something else than "done"',
      );
    }
    isOver = true;
  });
  // It is awaited in the end; until then `conversation.check` throws when the connection breaks.
  over.catch(() => {});
  const pace = new Pace(() => conversation.check());
  const { test } = setup.parameters;
  let seen = 0;
  if (test === 'send-bw') seen = await receiveMessages(setup, pace, () => isOver);
  else if (test === 'write-lat' || test === 'send-lat') seen = await answerRoundTrips(setup, pace, () => isOver);
  await over;
  return seen;
}

function sayEndpoints({ peers, device, parameters }: PerfSetup, say: (line: string) => void): void {
  const { txDepth, queuePairs } = parameters;
  say(`device ${device.name}, wire ${device.info.transport}, ${queuePairs} queue pairs (RC), tx depth ${txDepth}`);
  for (const { local, remote } of peers) {
    for (const [side, { lid, qpNumber, psn, gid }] of [
      [' local', local],
      ['remote', remote],
    ] as const) {
      say(`${side} address: LID ${hex(lid, 4)} QPN ${hex(qpNumber, 4)} PSN ${hex(psn, 6)} GID ${gid}`);
    }
  }
}

function hex(value: number, digits: number): string {
  return `0x${value.toString(16).padStart(digits, '0')}`;
}
