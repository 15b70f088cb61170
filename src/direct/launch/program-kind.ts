// Whether a program loads preloaded libraries, from its file: a static one does not.

import { closeSync, openSync, readSync, statSync } from 'node:fs';

const PT_INTERP = 3;
const EM_X86_64 = 62;
const SETUID = 0o4000;
const SETGID = 0o2000;
/** The kernel goes through so many scripts that are interpreters of each other. */
const MAX_SCRIPTS = 5;
/** Headers of programs are at the beginning of the file; more than this is not looked at. */
const HEAD_BYTES = 64 * 1024;

/** Why the library is not loaded into this program; undefined when it is, as far as can be seen. */
export function whyNotLoaded(path: string, depth = 0): string | undefined {
  const head = headOf(path);
  if (head === undefined) return undefined;
  const script = /^#![ \t]*(\S+)/.exec(head.toString('latin1', 0, 256))?.[1];
  if (script !== undefined) return depth < MAX_SCRIPTS ? whyNotLoaded(script, depth + 1) : undefined;
  if (head.length < 64 || head.toString('latin1', 0, 4) !== '\x7fELF') return undefined;
  const is64 = head[4] === 2;
  if (!is64 || head.readUInt16LE(18) !== EM_X86_64) return `${path} is not a 64-bit x86 program`;
  if (!hasInterpreter(head)) return `${path} is linked statically`;
  const { mode } = statSync(path);
  if ((mode & (SETUID | SETGID)) !== 0) return `${path} is set-user-ID or set-group-ID`;
  return undefined;
}

/** Elf64_Ehdr: e_phoff at 32, e_phentsize at 54, e_phnum at 56; p_type is the first word. */
function hasInterpreter(head: Buffer): boolean {
  const [offset, size, count] = [Number(head.readBigUInt64LE(32)), head.readUInt16LE(54), head.readUInt16LE(56)];
  for (let at = offset, index = 0; index < count && at + 4 <= head.length; index++, at += size) {
    if (head.readUInt32LE(at) === PT_INTERP) return true;
  }
  return false;
}

function headOf(path: string): Buffer | undefined {
  try {
    const file = openSync(path, 'r');
    try {
      const bytes = Buffer.alloc(HEAD_BYTES);
      return bytes.subarray(0, readSync(file, bytes, 0, HEAD_BYTES, 0));
    } finally {
      closeSync(file);
    }
  } catch {
    // A program that may be run but not read.
    return undefined;
  }
}
