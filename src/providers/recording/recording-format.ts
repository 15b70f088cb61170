// The recording of a program's verbs calls, version 1: lines of JSON, and the check of a line.
//
// The first line is the header. Each other line is one call that was made of a provider, in the
// order in which they were made, with its arguments and either its results or an `error`. `us` is
// when it was made, in microseconds since the header.
//
// Objects have numbers of the recording's own, from 1, never used twice; a call that makes one has
// the number in `id`. Keys, addresses and QP numbers are those of the recorded device; a replay
// finds by them what it made in their place.
//
//   {"millrace":"recording","version":1,"provider":"soft","startedAt":"2026-11-15T13:00:00.000Z"}
//   {"call":"openDevice","us":12,"name":"soft-shm","id":1}
//   {"call":"registerMr","us":80,"pd":2,"memory":1,"memoryBytes":4096,"offset":0,"sizeBytes":4096,"access":7,"id":5,"lkey":9,"rkey":8,"address":4096}
//   {"call":"postSend","us":99,"qp":7,"rows":[{"opcode":"send","flags":1,"wrId":1,"sges":[[4096,5,9]],"data":["aGVsbG8="]}],"taken":1}
//   {"call":"poll","us":140,"cq":4,"completions":[{"wrId":1,"status":"SUCCESS","opcode":"send","byteLength":5,"qp":201}]}
//
// `memory` names a piece of memory that several regions may be parts of. `data` of a request has,
// for each of its ranges, the bytes that were in it when it was posted, in base64; a range longer
// than the recorder's bound has their SHA-256 and their number instead. `remoteData` is the same
// for what a READ is to fetch, if that is memory of the recording. Polls that found nothing are
// left out. `truncated` is the last line of a recording that reached its bound; `event` lines are
// for people.

import { z } from 'zod';

const RECORDING_VERSION = 1;
/** A post of 64 rows with 64 KiB each in base64 fits. */
export const MAX_LINE_BYTES = 16 * 1024 * 1024;

const objectId = z.int().min(1).max(0x7fff_ffff);
const u32 = z.int().min(0).max(0xffff_ffff);
const size = z.int().min(0);
/** 64 bits as a number: exact up to 2^53, below which programs stay. */
const u64 = z
  .number()
  .min(0)
  .max(2 ** 64);
const text = z.string().max(1000);

const failure = z.strictObject({ code: z.string().max(64), message: text });
const made = { us: z.number().min(0), error: failure.optional() };

const bytes = z.union([z.base64(), z.strictObject({ sha256: z.string().regex(/^[0-9a-f]{64}$/), sizeBytes: u32 })]);
const sge = z.tuple([u64, u32, u32]);
const opcode = z.union([
  z.enum(['send', 'sendWithImm', 'write', 'writeWithImm', 'read', 'fetchAdd', 'compareSwap']),
  u32,
]);

const sendRequest = z.strictObject({
  opcode,
  flags: u32,
  wrId: u64,
  imm: u32.optional(),
  /** Address and rkey. */
  remote: z.tuple([u64, u32]).optional(),
  /** What to add or to compare with, low and high word; what to swap. */
  atomic: z.tuple([u32, u32, u32, u32]).optional(),
  /** UD: the handle of the address, QP number, qkey. */
  to: z.tuple([u32, u32, u32]).optional(),
  sges: z.array(sge).max(64),
  data: z.array(bytes).max(64).optional(),
  remoteData: bytes.optional(),
});

const receiveRequest = z.strictObject({ wrId: u64, sges: z.array(sge).max(64) });

const completion = z.strictObject({
  wrId: u64,
  status: z.string().max(32),
  opcode: z.string().max(32),
  byteLength: u32,
  imm: u32.optional(),
  /** The QP's number. */
  qp: u32,
});

const path = z.strictObject({
  gid: z.string().max(64),
  lid: u32.optional(),
  gidIndex: u32.optional(),
  hopLimit: u32.optional(),
});

const qpState = z.enum(['RESET', 'INIT', 'RTR', 'RTS', 'SQD', 'SQE', 'ERR']);
const attributes = z.strictObject({
  portNumber: u32.optional(),
  pkeyIndex: u32.optional(),
  access: u32.optional(),
  qkey: u32.optional(),
  path: path.optional(),
  pathMtu: z.union([z.literal(256), z.literal(512), z.literal(1024), z.literal(2048), z.literal(4096)]).optional(),
  destQpNumber: u32.optional(),
  rqPsn: u32.optional(),
  sqPsn: u32.optional(),
  maxDestRdAtomic: u32.optional(),
  maxRdAtomic: u32.optional(),
  minRnrTimer: u32.optional(),
  timeout: u32.optional(),
  retryCount: u32.optional(),
  rnrRetry: u32.optional(),
});

const header = z.strictObject({
  millrace: z.literal('recording'),
  version: z.literal(RECORDING_VERSION),
  provider: z.string().max(64),
  startedAt: z.string().max(64),
});

const makes = { ...made, id: objectId.optional() };
const rowsOf = <Row extends z.ZodType>(row: Row) => z.array(row).max(65_536);

const call = z.discriminatedUnion('call', [
  z.strictObject({ call: z.literal('openDevice'), ...makes, name: text }),
  z.strictObject({ call: z.literal('createPd'), ...makes, device: objectId }),
  z.strictObject({ call: z.literal('createChannel'), ...makes, device: objectId }),
  z.strictObject({
    call: z.literal('createCq'),
    ...makes,
    device: objectId,
    entries: u32,
    channel: objectId.optional(),
  }),
  z.strictObject({
    call: z.literal('registerMr'),
    ...makes,
    pd: objectId,
    memory: objectId,
    memoryBytes: size,
    offset: size,
    sizeBytes: size,
    access: u32,
    lkey: u32.optional(),
    rkey: u32.optional(),
    address: u64.optional(),
  }),
  z.strictObject({ call: z.literal('grant'), ...made, mr: objectId, qp: objectId, access: u32, rkey: u32.optional() }),
  z.strictObject({ call: z.literal('revoke'), ...made, mr: objectId, rkey: u32 }),
  z.strictObject({ call: z.literal('createSrq'), ...makes, pd: objectId, requests: u32, maxSge: u32 }),
  z.strictObject({
    call: z.literal('createQp'),
    ...makes,
    pd: objectId,
    type: z.enum(['RC', 'UD']),
    sendCq: objectId,
    receiveCq: objectId,
    srq: objectId.optional(),
    sendRequests: u32,
    receiveRequests: u32,
    maxSge: u32,
    maxInlineBytes: u32,
    signalAll: z.boolean(),
    number: u32.optional(),
  }),
  z.strictObject({ call: z.literal('createAh'), ...makes, pd: objectId, path, handle: u32.optional() }),
  z.strictObject({ call: z.literal('modify'), ...made, qp: objectId, to: qpState, attributes }),
  z.strictObject({
    call: z.literal('postSend'),
    ...made,
    qp: objectId,
    rows: rowsOf(sendRequest),
    taken: u32.optional(),
  }),
  z.strictObject({
    call: z.literal('postReceive'),
    ...made,
    qp: objectId,
    rows: rowsOf(receiveRequest),
    taken: u32.optional(),
  }),
  z.strictObject({
    call: z.literal('postSrq'),
    ...made,
    srq: objectId,
    rows: rowsOf(receiveRequest),
    taken: u32.optional(),
  }),
  z.strictObject({ call: z.literal('setLimit'), ...made, srq: objectId, limit: u32 }),
  z.strictObject({ call: z.literal('arm'), ...made, cq: objectId, solicitedOnly: z.boolean() }),
  z.strictObject({ call: z.literal('poll'), ...made, cq: objectId, completions: rowsOf(completion) }),
  z.strictObject({
    call: z.literal('mapRemote'),
    ...made,
    qp: objectId,
    rkey: u32,
    address: u64,
    sizeBytes: size,
  }),
  z.strictObject({ call: z.literal('close'), ...made, id: objectId }),
  z.strictObject({ call: z.literal('event'), ...made, device: objectId, kind: text, about: text }),
  z.strictObject({ call: z.literal('truncated'), ...made, afterBytes: size }),
]);

export type RecordingHeader = z.infer<typeof header>;
export type RecordedCall = z.infer<typeof call>;
export type RecordedSend = z.infer<typeof sendRequest>;
export type RecordedReceive = z.infer<typeof receiveRequest>;
export type RecordedCompletion = z.infer<typeof completion>;
export type RecordedBytes = z.infer<typeof bytes>;

/** Throws an Error that says in one line what is wrong. */
export function parseHeader(line: string): RecordingHeader {
  return parsed(header, line);
}

export function parseCall(line: string): RecordedCall {
  return parsed(call, line);
}

function parsed<T>(schema: z.ZodType<T>, line: string): T {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    throw new Error('it is not JSON');
  }
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const where = issue?.path.length ? `${issue.path.join('.').slice(0, 80)}: ` : '';
  throw new Error(`${where}${(issue?.message ?? 'it is invalid').replaceAll(/\s+/g, ' ').slice(0, 200)}`);
}
