// A config file as YAML: its value, and the line and column of each path in it.

import {
  type Document,
  isAlias,
  isMap,
  isNode,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  type Pair,
  parseDocument,
} from 'yaml';
import { printable } from '../text/index.ts';
import { ConfigError, MAX_SHOWN, type PlacedProblem, type Problem } from './config-error.ts';

/** Aliases save typing; more of them than this are an attempt to exhaust memory. */
const MAX_ALIASES = 100;
const MAX_SYNTAX_PROBLEMS = 10;

const plainWords: Readonly<Record<string, string>> = {
  MULTIPLE_DOCS: 'starts a second document; give one only',
  RESOURCE_EXHAUSTION: 'is nested too deeply; check that it is a config file',
  DUPLICATE_KEY: 'this key comes twice; leave one out',
  NON_STRING_KEY: 'is a key that is not text; give a word',
};

export class YamlSource {
  readonly #name: string;
  readonly #lines = new LineCounter();
  readonly #document: Document;
  /** Plain data; an empty file is an empty mapping. */
  readonly value: unknown;

  /** Throws a ConfigError when it is not YAML. */
  constructor(text: string, name: string) {
    this.#name = name;
    this.#document = parseDocument(text, { lineCounter: this.#lines, prettyErrors: false, stringKeys: true });
    const faults = [...this.#document.errors, ...this.#document.warnings];
    if (faults.length > 0) throw new ConfigError(name, this.#syntaxProblems(faults));
    this.value = this.#toValue() ?? {};
  }

  error(problems: readonly Problem[]): ConfigError {
    return new ConfigError(
      this.#name,
      problems.map((problem) => ({ ...problem, ...this.#place(problem) })),
    );
  }

  #toValue(): unknown {
    try {
      return this.#document.toJS({ maxAliasCount: MAX_ALIASES });
    } catch (cause) {
      const message = `${printable((cause as Error).message, MAX_SHOWN)}; write it out without aliases`;
      throw new ConfigError(this.#name, [{ path: [], message, line: 1, column: 1 }], { cause });
    }
  }

  #syntaxProblems(faults: Document['errors'] | readonly Document['warnings'][number][]): readonly PlacedProblem[] {
    const told = new Map<string, PlacedProblem>();
    for (const { code, message, pos } of faults) {
      const words =
        plainWords[code] ?? `is not YAML: ${printable(message, MAX_SHOWN)}; check the indentation, brackets and quotes`;
      // Too deep nesting is reported once for each level.
      const key = code === 'RESOURCE_EXHAUSTION' ? code : `${pos[0]}`;
      if (!told.has(key)) told.set(key, { path: [], message: words, ...this.#at(pos[0]) });
      if (told.size === MAX_SYNTAX_PROBLEMS) break;
    }
    return [...told.values()];
  }

  /**
   * The place of the value; of the key when there is no value; of the parent when the key is
   * missing.
   */
  #place({ path, isKey }: Problem): { readonly line: number; readonly column: number } {
    let node: unknown = this.#document.contents;
    let offset = offsetOf(node) ?? 0;
    for (const [depth, part] of path.entries()) {
      if (isAlias(node)) node = node.resolve(this.#document);
      const pair = isMap(node) ? node.items.find((one) => keyOf(one) === part) : undefined;
      const next: unknown = isSeq(node) && typeof part === 'number' ? node.items[part] : pair?.value;
      const isKeyMeant = isKey === true && depth === path.length - 1;
      const found = (isKeyMeant ? undefined : offsetOf(next)) ?? offsetOf(pair?.key);
      if (found === undefined) break;
      offset = found;
      node = next;
    }
    return this.#at(offset);
  }

  #at(offset: number): { readonly line: number; readonly column: number } {
    const { line, col } = this.#lines.linePos(offset);
    // An empty file has no lines.
    return { line: Math.max(1, line), column: Math.max(1, col) };
  }
}

function keyOf({ key }: Pair<unknown, unknown>): unknown {
  return isScalar(key) ? key.value : key;
}

function offsetOf(node: unknown): number | undefined {
  return isNode(node) ? (node as Node).range?.[0] : undefined;
}
