// Parses the text of a config file into a Config, or throws an error with all of its problems.

import type { z } from 'zod';
import { didYouMean, printable } from '../text/index.ts';
import { type Config, completeConfig, type Environment } from './config.ts';
import { ConfigError, formatPath, MAX_SHOWN, type Path, type Problem } from './config-error.ts';
import { crossChecks } from './cross-checks.ts';
import { knownKeys } from './json-schema.ts';
import { configSchema, type ParsedConfig } from './schema.ts';
import { YamlSource } from './yaml-source.ts';

/** Limit for the text of a config. */
export const MAX_CONFIG_BYTES = 1024 * 1024;

/** `source` is the file's name, for messages; files in the config are relative to its folder. */
export function parseConfig(text: string, source: string, env: Environment = process.env): Config {
  if (Buffer.byteLength(text) > MAX_CONFIG_BYTES) {
    const message = `is larger than ${MAX_CONFIG_BYTES} bytes; check that it is a config file`;
    throw new ConfigError(source, [{ path: [], message, line: 1, column: 1 }]);
  }
  const yaml = new YamlSource(text, source);
  const { parsed, problems } = check(yaml.value);
  if (parsed === undefined || problems.length > 0) throw yaml.error(problems);
  return completeConfig(parsed, source, env);
}

interface Checked {
  /** Undefined when there is a problem. */
  readonly parsed: ParsedConfig | undefined;
  readonly problems: readonly Problem[];
}

function check(value: unknown): Checked {
  const result = configSchema.safeParse(value);
  if (result.success) {
    const problems = crossChecks.flatMap((one) => one.check(result.data));
    return { parsed: problems.length === 0 ? result.data : undefined, problems };
  }
  const { issues } = result.error;
  const problems = issues.flatMap((issue) => problemsOf(issue, value));
  // The rest of the file is checked as if the invalid parts were not there.
  const rest = configSchema.safeParse(without(value, issues));
  if (!rest.success) return { parsed: undefined, problems };
  const wrong = problems.map(({ path }) => formatPath(path));
  const others = crossChecks
    .filter(({ reads }) => !reads.some((key) => wrong.some((bad) => isAbout(bad, key))))
    .flatMap((one) => one.check(rest.data));
  return { parsed: undefined, problems: [...problems, ...others] };
}

/** Whether one of the two paths is the other or inside it. */
function isAbout(path: string, key: string): boolean {
  const inside = (outer: string, inner: string): boolean =>
    inner === outer || inner.startsWith(`${outer}.`) || inner.startsWith(`${outer}[`);
  return inside(path, key) || inside(key, path);
}

type Issue = z.core.$ZodIssue;

function problemsOf(issue: Issue, value: unknown): readonly Problem[] {
  const path = issue.path.map((part) => (typeof part === 'symbol' ? String(part) : part));
  if (issue.code === 'unrecognized_keys') {
    const known = knownKeys(path);
    return issue.keys.map((key) => ({
      path: [...path, key],
      message: `there is no such key${didYouMean(key, known)}; correct it or leave it out`,
      isKey: true,
    }));
  }
  if (issue.code === 'custom' && issue.params?.isWhole === true)
    return [{ path, message: printable(issue.message, 400) }];
  return [{ path, message: `${wrongness(valueAt(value, path), path)}; give ${issue.message}` }];
}

function wrongness(given: unknown, path: Path): string {
  if (given === undefined) return 'is missing';
  if (given === null) return 'is empty';
  // A password is never repeated, even when it is invalid.
  if (path.at(-1) === 'password') return 'does not fit';
  if (Array.isArray(given)) return 'a list does not fit';
  if (typeof given === 'object') return 'a mapping does not fit';
  return `${typeof given === 'string' ? `'${printable(given, MAX_SHOWN)}'` : JSON.stringify(given)} does not fit`;
}

function valueAt(value: unknown, path: Path): unknown {
  return path.reduce<unknown>(
    (inner, part) => (isContainer(inner) && Object.hasOwn(inner, part) ? inner[part] : undefined),
    value,
  );
}

function isContainer(value: unknown): value is Record<string | number, unknown> {
  return typeof value === 'object' && value !== null;
}

/**
 * A copy without the invalid values. A list with an invalid item, or a mapping without a required
 * key, is removed whole.
 */
function without(value: unknown, issues: readonly Issue[]): unknown {
  const copy: unknown = structuredClone(value);
  for (const issue of issues) {
    const keys = issue.code === 'unrecognized_keys' ? issue.keys : [undefined];
    for (const key of keys) remove(copy, key === undefined ? issue.path : [...issue.path, key]);
  }
  return copy;
}

function remove(value: unknown, path: readonly PropertyKey[]): void {
  const [first, ...rest] = path;
  if (first === undefined || !isContainer(value) || typeof first === 'symbol') return;
  const inner = value[first];
  const isDeeper = rest.length > 0 && isContainer(inner) && !Array.isArray(inner);
  // A required key is missing, so its whole parent is removed.
  if (isDeeper && (rest.length > 1 || Object.hasOwn(inner, rest[0] ?? ''))) remove(inner, rest);
  else delete value[first];
}
