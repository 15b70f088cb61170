// Writes src/steering/layouts.ts: the structs and enums that BPF programs share with TypeScript,
// from the debug information (BTF) of the compiled object, so that both sides read the same bytes.
// `--check` only compares.

import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const target = `${root}src/steering/layouts.ts`;
const object = 'build/bpf/steer.o';
/** Structs to write; what they contain comes along. */
const wanted = [
  'ip_endpoint',
  'settings',
  'service_key',
  'service',
  'lane_mark',
  'announcement',
  'admission_key',
  'admission',
  'heard_syn',
  'connection',
  'event',
  'rule_set',
];
/** Their constants are read in TypeScript as well. */
const prefixes: Readonly<Record<string, string>> = {
  action: 'ACTION_',
  rule_flags: 'RULE_',
  announcement_flags: 'ANNOUNCED_',
  verdict: 'VERDICT_',
  event_kind: 'EVENT_',
};

interface BtfType {
  readonly id: number;
  readonly kind: string;
  readonly name: string;
  readonly size?: number;
  readonly type_id?: number;
  readonly nr_elems?: number;
  readonly members?: readonly { readonly name: string; readonly type_id: number; readonly bits_offset: number }[];
  readonly values?: readonly { readonly name: string; readonly val: number }[];
}

const dump = execFileSync('bpftool', ['btf', 'dump', 'file', object, '-j'], { cwd: root, encoding: 'utf8' });
const types: readonly BtfType[] = JSON.parse(dump).types;
const byId = new Map(types.map((type) => [type.id, type]));

function named(kind: string, name: string): BtfType {
  const type = types.find((one) => one.kind === kind && one.name === name);
  if (type === undefined) throw new Error(`${object} has no ${kind.toLowerCase()} ${name}`);
  return type;
}

/** Through typedefs and qualifiers to what is stored. */
function resolve(id: number): BtfType {
  const type = byId.get(id);
  if (type === undefined) throw new Error(`${object} has no type ${id}`);
  return ['TYPEDEF', 'CONST', 'VOLATILE'].includes(type.kind) ? resolve(type.type_id ?? 0) : type;
}

const camel = (name: string): string => name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
const pascal = (name: string): string => camel(`_${name}`);

/** How a field is read, written, and what TypeScript calls its type. */
interface Access {
  readonly type: string;
  read(at: string): string;
  write(at: string, value: string): string;
  readonly sizeBytes: number;
}

function accessOf(type: BtfType): Access {
  if (type.kind === 'ENUM') return integer(4);
  if (type.kind === 'INT') return integer(type.size ?? 4);
  if (type.kind === 'STRUCT') return struct(type);
  if (type.kind === 'ARRAY') return array(type);
  throw new Error(`a field of kind ${type.kind} has no counterpart in TypeScript`);
}

function integer(sizeBytes: number): Access {
  if (sizeBytes === 8) {
    return {
      type: 'number',
      sizeBytes,
      read: (at) => `Number(view.getBigUint64(${at}, true))`,
      write: (at, value) => `view.setBigUint64(${at}, BigInt(${value}), true)`,
    };
  }
  if (sizeBytes !== 4) throw new Error(`an integer of ${sizeBytes} bytes`);
  return {
    type: 'number',
    sizeBytes,
    read: (at) => `view.getUint32(${at}, true)`,
    write: (at, value) => `view.setUint32(${at}, ${value}, true)`,
  };
}

function struct(type: BtfType): Access {
  const name = pascal(type.name);
  return {
    type: name,
    sizeBytes: type.size ?? 0,
    read: (at) => `read${name}(view, ${at})`,
    write: (at, value) => `write${name}(view, ${at}, ${value})`,
  };
}

function array(type: BtfType): Access {
  const element = resolve(type.type_id ?? 0);
  const count = type.nr_elems ?? 0;
  if (element.kind === 'INT' && element.size === 1) {
    return {
      type: 'string',
      sizeBytes: count,
      read: (at) => `readText(view, ${at}, ${count})`,
      write: (at, value) => `writeText(view, ${at}, ${count}, ${value})`,
    };
  }
  const each = accessOf(element);
  const step = each.sizeBytes;
  return {
    type: `readonly ${each.type}[]`,
    sizeBytes: count * step,
    read: (at) => `Array.from({ length: ${count} }, (_, index) => ${each.read(`${at} + index * ${step}`)})`,
    write: (at, value) =>
      `for (let index = 0; index < Math.min(${count}, ${value}.length); index++) ${each.write(`${at} + index * ${step}`, `${value}[index]`)}`,
  };
}

function structText(type: BtfType): string {
  const name = pascal(type.name);
  const fields = (type.members ?? []).map((member) => ({
    name: camel(member.name),
    offset: member.bits_offset / 8,
    access: accessOf(resolve(member.type_id)),
  }));
  const at = (offset: number): string => (offset === 0 ? 'offset' : `offset + ${offset}`);
  return `
export interface ${name} {
${fields.map((field) => `  readonly ${field.name}: ${field.access.type};`).join('\n')}
}

export const ${name.toUpperCase() === name ? name : type.name.toUpperCase()}_BYTES = ${type.size};

export function read${name}(view: DataView, offset: number): ${name} {
  return {
${fields.map((field) => `    ${field.name}: ${field.access.read(at(field.offset))},`).join('\n')}
  };
}

export function write${name}(view: DataView, offset: number, value: ${name}): void {
${fields.map((field) => `  ${field.access.write(at(field.offset), `value.${field.name}`)};`).join('\n')}
}
`;
}

function enumText(name: string, prefix: string): string {
  const values = named('ENUM', name).values ?? [];
  const entries = values
    .filter((value) => value.name.startsWith(prefix))
    .map((value) => `  ${camel(value.name.slice(prefix.length).toLowerCase())}: ${value.val},`);
  const constant = camel(name).endsWith('s') ? camel(name) : `${camel(name)}s`;
  return `\nexport const ${constant} = {\n${entries.join('\n')}\n} as const;\n`;
}

/** Structs in the order in which they are needed. */
function collect(type: BtfType, into: Set<BtfType>): void {
  if (type.kind === 'ARRAY') collect(resolve(type.type_id ?? 0), into);
  if (type.kind !== 'STRUCT') return;
  for (const member of type.members ?? []) collect(resolve(member.type_id), into);
  into.add(type);
}

const structs = new Set<BtfType>();
for (const name of wanted) collect(named('STRUCT', name), structs);
const text = `// The layouts of bpf/steer.bpf.h. Generated by tools/bpf-layouts.ts: do not edit.

const decoder = new TextDecoder();
const encoder = new TextEncoder();

/** Bytes up to the first NUL. */
function readText(view: DataView, offset: number, sizeBytes: number): string {
  const bytes = new Uint8Array(view.buffer, view.byteOffset + offset, sizeBytes);
  const end = bytes.indexOf(0);
  return decoder.decode(end < 0 ? bytes : bytes.subarray(0, end));
}

/** Cut to leave a NUL at the end, filled up with NULs. */
function writeText(view: DataView, offset: number, sizeBytes: number, text: string): void {
  const bytes = new Uint8Array(view.buffer, view.byteOffset + offset, sizeBytes);
  bytes.fill(0);
  bytes.set(encoder.encode(text).subarray(0, sizeBytes - 1));
}
${Object.entries(prefixes)
  .map(([name, prefix]) => enumText(name, prefix))
  .join('')}${[...structs].map(structText).join('')}`;

const formatted = execFileSync('node_modules/.bin/biome', ['format', '--stdin-file-path', target], {
  cwd: root,
  input: text,
  encoding: 'utf8',
});
if (process.argv.includes('--check')) {
  if (readFileSync(target, 'utf8') !== formatted) {
    process.stderr.write('src/steering/layouts.ts is not what bpf/steer.bpf.h says; run: node tools/bpf-layouts.ts\n');
    process.exit(1);
  }
} else {
  writeFileSync(target, formatted);
}
