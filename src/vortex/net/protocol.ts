// The messages between the two hosts of a network stream, on their control connection.
//
// The receiver dials; the sender listens.
//
//   receiver:  hello      the wire and the strategy that it wants; without them: those of the sender
//   sender:    offer      the stream, and how its blocks move
//   receiver:  accept     its pool, and on RDMA its two queue pairs
//   sender:    connect    its own queue pairs
//   receiver:  ready      the sender may send bytes
//   sender:    size       everything is written; the length of the stream
//   receiver:  done       everything is read; its last line
//   either:    ping       the heartbeat; answered with a pong of the same number
//   either:    bye        it ends the stream before its end; its last line
//   either:    cut        the network that moves the blocks broke; its last line
//   either:    refused    the peer violated the protocol; its last line
//
// On the wire `tcp` the receiver dials the same port a second time and sends one byte, 0xd7, and
// the token. After that the connection has the bytes of the stream and nothing else. They are not
// encrypted, as on RDMA, also if the control connection has TLS: who can change packets on the way
// can change the stream.

import {
  hex,
  integer,
  list,
  type MessageOf,
  oneOf,
  only,
  optional,
  Protocol,
  printableText,
} from '../../json-lines/index.ts';
import { type QpEndpoint, qpEndpoint } from '../../verbs/endpoint/index.ts';
import { MAX_BLOCK_BYTES, MIN_BLOCK_BYTES } from '../stream/index.ts';

/** Two endpoints with a region are below 1 KiB. */
export const MAX_LINE_BYTES = 8192;
const TOKEN_BYTES = 16;
/** The first byte of a data connection; neither JSON nor TLS begins with it. */
export const DATA_FIRST_BYTE = 0xd7;
export const PREFACE_BYTES = 1 + TOKEN_BYTES;

export const strategies = ['pool', 'register', 'copy'] as const;
/** How blocks get from pool to pool on RDMA. */
export type Strategy = (typeof strategies)[number];

/** What moves the blocks: plain TCP, or a kind of RDMA. */
const wires = ['tcp', 'rdma-shm', 'rdma-tcp', 'rdma-roce', 'rdma-ib', 'rdma-iwarp'] as const;
export type Wire = (typeof wires)[number];

/** On RDMA: the queue pair for blocks, then that for notifications. Empty on TCP. */
export type QpEndpoints = readonly QpEndpoint[];

const wire = oneOf(...wires);
const strategy = oneOf(...strategies);
const poolBlocks = integer(2, 65_536);
const queuePairs = only(list(qpEndpoint, 0, 2), ({ length }) => length !== 1, 'two queue pairs or none');
const number = integer();
const reason = printableText();

export const vortexProtocol = new Protocol('vortex', 2, {
  hello: { wire: optional(wire), strategy: optional(strategy) },
  offer: {
    /** Missing: not known yet. */
    sizeBytes: optional(integer()),
    blockBytes: only(
      integer(MIN_BLOCK_BYTES, MAX_BLOCK_BYTES),
      (bytes) => Number.isInteger(Math.log2(bytes)),
      'a power of two',
    ),
    poolBlocks,
    wire,
    strategy,
    token: hex(2 * TOKEN_BYTES),
  },
  accept: { poolBlocks, queuePairs },
  connect: { queuePairs },
  ready: {},
  size: { sizeBytes: integer() },
  done: {},
  ping: { number },
  pong: { number },
  bye: { reason },
  cut: { reason },
  refused: { reason },
});

export type Message = MessageOf<typeof vortexProtocol>;
export type MessageOfKind<Kind extends Message['kind']> = Extract<Message, { readonly kind: Kind }>;
export type Offer = MessageOfKind<'offer'>;
