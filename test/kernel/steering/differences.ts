// Where a connection that `connect` carries differs from plain TCP: docs/steering-differences.md as
// data. A test holds each to its word.

export interface Difference {
  /** A sentence, as in the document. */
  readonly what: string;
  readonly client: string;
  readonly server: string;
}

/** By behaviour. Whatever is not here is equal, line by line. */
export const connectDifferences: Readonly<Record<string, Difference>> = {
  urgent: {
    what: 'Urgent data is not carried: the urgent byte is left out, the bytes around it arrive.',
    client: "poll nothing, recv urgent EINVAL '-', the rest is 'abcd'",
    server: 'send urgent 1, recv 0',
  },
};

/** With `redirect`, what both ends see; a pattern or null where that depends on timing. */
export const redirectDifferences: Readonly<
  Record<string, { what: string; client: string | RegExp; server: string | null }>
> = {
  'close-unread': {
    what: 'A close with unread data ends the connection instead of resetting it.',
    client: 'close 0',
    server: 'poll IN RDHUP, recv 0, recv 0, recv 0, send 1',
  },
  fionread: {
    what: 'A close with unread data ends the connection instead of resetting it.',
    client: "11 bytes wait, recv 'hello', 6 bytes wait",
    server: 'recv 0',
  },
  waitall: {
    what: 'MSG_WAITALL returns what is there.',
    // Each of them returns before the 4000 bytes that it asked for have come.
    client: /^recv [1-3]?\d00 right, recv [1-3]?\d00 WRONG, recv [1-3]?\d00$/,
    server: null,
  },
  urgent: {
    what: 'Urgent data is not carried, and recv(MSG_OOB) takes an ordinary byte.',
    client: "poll nothing, recv urgent 1 'a', the rest is 'bcd'",
    server: 'send urgent 1, recv 0',
  },
};
