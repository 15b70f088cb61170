// What sender and receiver of a file say to each other beside the stream that carries it.
//
// The receiver dials; the sender listens. With TLS these lines are encrypted; the bytes of the
// stream are not, but their checksum is compared here, so that a change on the way is found out.
//
//   receiver:  hello
//   sender:    offer      the file; a pipe leaves out what it does not know
//   receiver:  have       how many bytes of it are there from before
//   receiver:  prefix     the checksum of these; only after a `have` that is not 0
//   sender:    stream     where the rest can be fetched with openReceiver; it starts where `have` ends, or at 0 when the
//                         bytes before that differ
//   …the stream…
//   sender:    sum        of the whole file
//   receiver:  kept       the file has its final name; the last line
//   either:    busy       still here, and reading or writing a disk
//   either:    failed     why it gives up; its last line

import {
  hex,
  integer,
  type MessageOf,
  object,
  only,
  optional,
  Protocol,
  printableText,
  text,
  type ValueOf,
} from '../../json-lines/index.ts';

export const MAX_LINE_BYTES = 4096;
const MAX_NAME_BYTES = 255;

/** A name in a folder, and never a way out of it. */
const fileName = only(
  text(/^[^/]{1,255}$/u, 'the name of a file'),
  (name) => Buffer.byteLength(name) <= MAX_NAME_BYTES && name.isWellFormed() && !/^\.{1,2}$|\p{Cc}/u.test(name),
  'the name of a file',
);
const sha256 = hex(64);
const bytes = integer();

const offer = {
  /** Without folders. Missing: a pipe. */
  name: optional(fileName),
  /** Missing: a pipe, which tells at its end. */
  sizeBytes: optional(bytes),
  /** When the file was changed last, in ns since 1970. Missing: a pipe. */
  modifiedNs: optional(text(/^-?\d{1,20}$/, 'nanoseconds')),
};

export const filesProtocol = new Protocol('files', 2, {
  hello: {},
  offer,
  have: { bytes },
  prefix: { sha256 },
  stream: { port: integer(1, 65_535), startBytes: bytes },
  sum: { sizeBytes: bytes, sha256 },
  kept: { sha256 },
  busy: {},
  /** A stable code (`ENOSPC`, `MILLRACE_ERR_…`), and words for people. */
  failed: { code: text(/^[A-Z][A-Z0-9_]{1,60}$/, 'an error code'), reason: printableText() },
});

export type Message = MessageOf<typeof filesProtocol>;
export type MessageOfKind<Kind extends Message['kind']> = Extract<Message, { readonly kind: Kind }>;

/** Also what the note of a part holds. */
export const fileOffer = object(offer);
/**
 * What is sent, as far as the sender knows. If all three fields are the same, it is the same file.
 */
export type FileOffer = ValueOf<typeof fileOffer>;

export function isSameFile(one: FileOffer, other: FileOffer): boolean {
  return one.name === other.name && one.sizeBytes === other.sizeBytes && one.modifiedNs === other.modifiedNs;
}
