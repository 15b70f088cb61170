// A protocol in JSON lines: a table of messages, from which reading, writing and the types of the
// messages follow.
//
// On the wire a message is one object with its kind and exactly the fields of its row, as in
// {"kind":"ping","number":1}. The first line of each side is its hello, where the name of the
// protocol and its version stand in place of the kind: {"millrace":"control","version":2,…}. The
// version is checked first: another one may well have other fields.

import { ProtocolError, UsageError } from '../errors.ts';
import { decodeFields, encodeFields, type Fields, mismatch, objectOf, type ValuesOf } from './shape.ts';

/** The fields of each kind of message. */
export type MessageTable = Readonly<Record<string, Fields>>;

type RowMessage<Kind extends string, F extends Fields> = { readonly kind: Kind } & ValuesOf<F>;

/** All messages of a protocol, or those of some kinds. */
export type MessageOf<P, Kind extends string = string> =
  P extends Protocol<infer T> ? { [K in keyof T & Kind]: RowMessage<K, T[K]> }[keyof T & Kind] : never;

export class Protocol<T extends MessageTable> {
  readonly name: string;
  readonly version: number;
  readonly table: T;

  constructor(name: string, version: number, table: T) {
    this.name = name;
    this.version = version;
    this.table = table;
  }

  /**
   * As plain data for one line of JSON. Throws a UsageError when the other side would refuse it.
   */
  encode(message: MessageOf<Protocol<T>>): object {
    const { kind, ...values } = message;
    const fields = encodeFields(this.#fieldsOf(kind), values);
    const head = kind === 'hello' ? { millrace: this.name, version: this.version } : { kind };
    const encoded = withoutMissing({ ...head, ...fields });
    try {
      this.decode(encoded);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      throw new UsageError(`send a ${error.message}`, { cause: error });
    }
    return encoded;
  }

  /** With the newline. */
  line(message: MessageOf<Protocol<T>>): string {
    return `${JSON.stringify(this.encode(message))}\n`;
  }

  /** Checks everything. Throws a ProtocolError that says what is wrong with it. */
  decode(value: unknown): MessageOf<Protocol<T>> {
    const what = `${this.name} message`;
    const { kind, ...fields } = this.#headOf(objectOf(value, what), what);
    return { kind, ...decodeFields(this.#fieldsOf(kind), fields, `${what}: `) } as MessageOf<Protocol<T>>;
  }

  /** Reads one line. */
  parse(line: string): MessageOf<Protocol<T>> {
    return this.decode(parseJson(line, `${this.name} message`));
  }

  #headOf(body: Readonly<Record<string, unknown>>, what: string): { readonly kind: string } {
    if (Object.hasOwn(body, 'millrace')) {
      const { millrace, version, ...fields } = body;
      if (millrace !== this.name) throw mismatch(`${what}: its protocol`, millrace, this.name);
      if (version !== this.version) throw mismatch(`${what}: its version`, version, String(this.version));
      return { ...fields, kind: 'hello' };
    }
    const { kind } = body;
    const isKnown = typeof kind === 'string' && kind !== 'hello' && Object.hasOwn(this.table, kind);
    if (!isKnown) throw mismatch(`${what}: its kind`, kind, Object.keys(this.table).join(' or '));
    return { ...body, kind };
  }

  #fieldsOf(kind: string): Fields {
    const fields = this.table[kind];
    if (fields === undefined) throw new ProtocolError(`${this.name} message: a ${kind}, which this protocol has not`);
    return fields;
  }
}

/** Throws a ProtocolError when it is none. `what`: of which conversation the line is. */
export function parseJson(line: string, what: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    throw new ProtocolError(`${what}: a line that is not JSON`);
  }
}

/** As JSON leaves them out. */
function withoutMissing(fields: object): object {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
