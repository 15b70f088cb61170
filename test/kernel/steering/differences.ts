// Where a connection that `connect` carries differs from plain TCP: docs/steering-differences.md as data. A test holds each to its word.

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

/** With `redirect`, where it is certain what happens. What both ends see; null where that depends on the moment. */
export const redirectDifferences: Readonly<
  Record<string, { what: string; client: string | null; server: string | null }>
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
    client: 'recv 500 right, recv 500 WRONG, recv 500',
    server: null,
  },
  urgent: {
    what: 'Urgent data is not carried, and recv(MSG_OOB) takes an ordinary byte.',
    client: "poll nothing, recv urgent 1 'a', the rest is 'bcd'",
    server: 'send urgent 1, recv 0',
  },
};
