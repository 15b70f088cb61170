// What two nodes say to each other over TCP. The node that dialed and the one that accepted say the
// same:
//
//   hello      who it is
//   welcome    the other's id, back: its hello was accepted
//   …the QPs are connected, as verbs/connect.ts does…
//   buffer     it has allocated a buffer
//   free       start no further transfer with this buffer, and say when the last one is over
//   freed      the answer to that
//   bye        why it leaves; its last line, at any time

import { integer, type MessageOf, only, optional, Protocol, printableText, text } from '../json-lines/index.ts';
import { remoteRegion } from '../verbs/endpoint/index.ts';
import { MAX_ID, MAX_NODE_ID } from './ids.ts';

/** Endpoints of verbs are the longest, some 300 bytes. */
export const MAX_LINE_BYTES = 4096;
/** Of one node, at a time. */
export const MAX_BUFFERS = 4096;
const namePattern = /^[\x21-\x7e]{1,64}$/;

const node = integer(1, MAX_NODE_ID);
const id = integer(1, MAX_ID);

export const transferProtocol = new Protocol('transfer', 2, {
  hello: { node },
  welcome: { node },
  buffer: {
    id,
    name: optional(text(namePattern, '1 to 64 printable characters')),
    region: only(remoteRegion, ({ sizeBytes }) => sizeBytes > 0, 'one byte or more'),
  },
  free: { id },
  freed: { id },
  bye: { reason: printableText() },
});

export type Message = MessageOf<typeof transferProtocol>;
/** What a node tells of a buffer of its own. */
export type BufferOffer = MessageOf<typeof transferProtocol, 'buffer'>;

export function isBufferName(name: string): boolean {
  return namePattern.test(name);
}
