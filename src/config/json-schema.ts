// The JSON schema of the config file, for editors and other programs, made from the schema that
// checks it.

import { z } from 'zod';
import type { Path } from './config-error.ts';
import { configSchema } from './schema.ts';

/** The parts of a schema node that are used here. */
interface SchemaNode {
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly items?: SchemaNode;
}

export function configJsonSchema(): object {
  return { title: 'millrace', ...z.toJSONSchema(configSchema, { io: 'input' }) };
}

/** The keys that a mapping at this path may have. */
export function knownKeys(path: Path): readonly string[] {
  let node: SchemaNode | undefined = configJsonSchema();
  for (const part of path) {
    node = typeof part === 'number' ? node?.items : node?.properties?.[part];
  }
  return Object.keys(node?.properties ?? {});
}
