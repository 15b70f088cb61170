// Shapes of values in JSON lines: each checks what a peer sent in full, within limits, and says
// what it expected.

import { ProtocolError, UsageError } from '../errors.ts';
import { printable } from '../text/index.ts';

/** A field of a message: how its value is read from JSON, and how it is written. */
export interface Shape<T> {
  /** Throws a ProtocolError; `name` says in it which field of which message. */
  decode(value: unknown, name: string): T;
  encode(value: T): unknown;
  /** What it is made of, for tests that make up values. */
  readonly kind: ShapeKind;
}

type ShapeKind =
  | { readonly type: 'integer'; readonly min: number; readonly max: number }
  | { readonly type: 'boolean' | 'printable' | 'json' }
  | { readonly type: 'text'; readonly pattern: RegExp }
  | { readonly type: 'oneOf'; readonly values: readonly (string | number)[] }
  | { readonly type: 'list'; readonly of: Shape<unknown>; readonly min: number; readonly max: number }
  | { readonly type: 'object'; readonly fields: Fields }
  | { readonly type: 'map'; readonly of: Shape<unknown>; readonly max: number; readonly maxKeyLength: number }
  | { readonly type: 'optional' | 'narrowed'; readonly of: Shape<unknown> };

export type Fields = Readonly<Record<string, Shape<unknown>>>;
export type ValueOf<S> = S extends Shape<infer T> ? T : never;
export type ValuesOf<F extends Fields> = { readonly [Name in keyof F]: ValueOf<F[Name]> };

type JsonObject = Readonly<Record<string, unknown>>;

/** Of texts for people, such as reasons. */
const MAX_PRINTABLE_LENGTH = 200;
const MAX_SHOWN_LENGTH = 40;

const same = <T>(value: T): T => value;

export function integer(min = 0, max = Number.MAX_SAFE_INTEGER): Shape<number> {
  return {
    kind: { type: 'integer', min, max },
    decode: (value, name) => {
      if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= max) return value;
      throw mismatch(name, value, `${min} to ${max}`);
    },
    encode: same,
  };
}

export function boolean(): Shape<boolean> {
  return {
    kind: { type: 'boolean' },
    decode: (value, name) => {
      if (typeof value === 'boolean') return value;
      throw mismatch(name, value, 'true or false');
    },
    encode: same,
  };
}

/** The pattern has to limit the length. `expected`: what it takes, in words. */
export function text(pattern: RegExp, expected: string): Shape<string> {
  return {
    kind: { type: 'text', pattern },
    decode: (value, name) => {
      if (typeof value === 'string' && pattern.test(value)) return value;
      throw mismatch(name, value, expected);
    },
    encode: same,
  };
}

export function hex(digits: number): Shape<string> {
  return text(new RegExp(`^[0-9a-f]{${digits}}$`), `${digits} hexadecimal digits`);
}

/** Words for people. Both sides make them short, and free of what moves a cursor. */
export function printableText(): Shape<string> {
  return {
    kind: { type: 'printable' },
    decode: (value, name) => {
      if (typeof value === 'string') return printable(value, MAX_PRINTABLE_LENGTH);
      throw mismatch(name, value, 'a text');
    },
    encode: (value) => printable(value, MAX_PRINTABLE_LENGTH),
  };
}

export function oneOf<const T extends string | number>(...values: readonly T[]): Shape<T> {
  return {
    kind: { type: 'oneOf', values },
    decode: (value, name) => {
      const found = values.find((one) => one === value);
      if (found === undefined) throw mismatch(name, value, values.join(' or '));
      return found;
    },
    encode: same,
  };
}

/** A field that may be missing. */
export function optional<T>(of: Shape<T>): Shape<T | undefined> {
  return {
    kind: { type: 'optional', of },
    decode: (value, name) => (value === undefined ? undefined : of.decode(value, name)),
    encode: (value) => (value === undefined ? undefined : of.encode(value)),
  };
}

export function list<T>(of: Shape<T>, min: number, max: number): Shape<readonly T[]> {
  return {
    kind: { type: 'list', of, min, max },
    decode: (value, name) => {
      if (!Array.isArray(value) || value.length < min || value.length > max) {
        throw mismatch(name, value, `a list of ${min} to ${max}`);
      }
      return value.map((each, index) => of.decode(each, `${name}[${index}]`));
    },
    encode: (value) => value.map((each) => of.encode(each)),
  };
}

/** Exactly these fields. */
export function object<F extends Fields>(fields: F): Shape<ValuesOf<F>> {
  return {
    kind: { type: 'object', fields },
    decode: (value, name) => decodeFields(fields, objectOf(value, name), `${name}.`),
    encode: (value) => encodeFields(fields, value),
  };
}

/**
 * An object whose keys the peer chooses. It has no prototype, so that none of them means anything.
 */
export function map<T>(of: Shape<T>, max: number, maxKeyLength: number): Shape<Readonly<Record<string, T>>> {
  return {
    kind: { type: 'map', of, max, maxKeyLength },
    decode: (value, name) => {
      const entries = Object.entries(objectOf(value, name));
      if (entries.length > max) throw new ProtocolError(`${name} has ${entries.length} entries; expected 0 to ${max}`);
      const decoded: Record<string, T> = Object.create(null);
      for (const [key, each] of entries) {
        if (key.length > maxKeyLength) {
          throw new ProtocolError(`${name} has a key of ${key.length} characters; expected 0 to ${maxKeyLength}`);
        }
        decoded[key] = of.decode(each, `${name}.${printable(key, MAX_SHOWN_LENGTH)}`);
      }
      return decoded;
    },
    encode: (value) => Object.fromEntries(Object.entries(value).map(([key, each]) => [key, of.encode(each)])),
  };
}

/**
 * Any object, for somebody else to check. Deeper nesting could exhaust the stack of whoever walks
 * or clones it.
 */
export function jsonObject(maxBytes: number, maxDepth: number): Shape<object> {
  return {
    kind: { type: 'json' },
    decode: (value, name) => {
      const found = objectOf(value, name);
      if (!isShallow(found, maxDepth)) throw new ProtocolError(`${name} is nested deeper than ${maxDepth}`);
      const sizeBytes = Buffer.byteLength(JSON.stringify(found));
      if (sizeBytes > maxBytes) throw new ProtocolError(`${name} has ${sizeBytes} bytes; expected 0 to ${maxBytes}`);
      return found;
    },
    encode: same,
  };
}

/** Of these, only some values. `expected`: which, in words. */
export function only<T>(of: Shape<T>, isGood: (value: T) => boolean, expected: string): Shape<T> {
  return {
    kind: { type: 'narrowed', of },
    decode: (value, name) => {
      const decoded = of.decode(value, name);
      if (isGood(decoded)) return decoded;
      throw mismatch(name, value, expected);
    },
    encode: (value) => of.encode(value),
  };
}

/** Another form of these values in memory. `parse` throws a UsageError for those that have none. */
export function converted<W, T>(of: Shape<W>, parse: (value: W) => T, format: (value: T) => W): Shape<T> {
  return {
    kind: { type: 'narrowed', of },
    decode: (value, name) => {
      const decoded = of.decode(value, name);
      try {
        return parse(decoded);
      } catch (error) {
        if (!(error instanceof UsageError)) throw error;
        throw new ProtocolError(`${name}: ${printable(error.message, MAX_PRINTABLE_LENGTH)}`, { cause: error });
      }
    },
    encode: (value) => of.encode(format(value)),
  };
}

export function objectOf(value: unknown, name: string): JsonObject {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as JsonObject;
  throw mismatch(name, value, 'an object');
}

/** `prefix` comes before the names of fields in messages. */
export function decodeFields<F extends Fields>(fields: F, value: JsonObject, prefix: string): ValuesOf<F> {
  const decoded = Object.entries(fields).map(([key, shape]) => [key, shape.decode(value[key], `${prefix}${key}`)]);
  for (const key of Object.keys(value)) {
    if (!Object.hasOwn(fields, key)) {
      throw new ProtocolError(`${prefix}${printable(key, MAX_SHOWN_LENGTH)} is no field of it`);
    }
  }
  return Object.fromEntries(decoded) as ValuesOf<F>;
}

export function encodeFields<F extends Fields>(fields: F, value: ValuesOf<F>): JsonObject {
  return Object.fromEntries(Object.entries(fields).map(([key, shape]) => [key, shape.encode(value[key])]));
}

export function mismatch(name: string, value: unknown, expected: string): ProtocolError {
  return new ProtocolError(`${name} is ${shown(value)}; expected ${expected}`);
}

/**
 * What a peer sent, short and on one line. Objects are not shown: they may be nested as deep as a
 * line is long.
 */
function shown(value: unknown): string {
  if (value === undefined) return 'missing';
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (typeof value === 'object' && value !== null) return 'an object';
  return printable(JSON.stringify(value), MAX_SHOWN_LENGTH);
}

function isShallow(value: unknown, depth: number): boolean {
  if (typeof value !== 'object' || value === null) return true;
  return depth > 0 && Object.values(value).every((part) => isShallow(part, depth - 1));
}
