// The path to a peer as words: the GID as text, then the optional fields.

import type { PathTo } from '../../verbs/index.ts';
import type { WordReader, WordWriter } from './words.ts';

export function readPath(args: WordReader): PathTo {
  const gid = args.text();
  const lid = args.optional();
  const gidIndex = args.optional();
  const hopLimit = args.optional();
  return {
    gid,
    ...(lid !== undefined && { lid }),
    ...(gidIndex !== undefined && { gidIndex }),
    ...(hopLimit !== undefined && { hopLimit }),
  };
}

export function writePath(writer: WordWriter, { gid, lid, gidIndex, hopLimit }: PathTo): void {
  writer.text(gid).optional(lid).optional(gidIndex).optional(hopLimit);
}
