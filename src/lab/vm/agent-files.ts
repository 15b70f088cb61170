// The agent's source for the image: plain JavaScript, because stripping types in a guest takes
// seconds.

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import { MillraceError } from '../../errors.ts';

export interface SourceFile {
  readonly name: string;
  readonly text: string;
}

const modules = ['agent-main', 'agent', 'agent-pipes', 'frames'] as const;
/** `.ts` in a checkout, `.js` in the package. */
const extension = extname(import.meta.filename);

/** The files as they are here, for the key of the image. */
export function agentFiles(): readonly SourceFile[] {
  return modules.map((module) => {
    const name = `${module}${extension}`;
    return { name, text: readFileSync(join(import.meta.dirname, name), 'utf8') };
  });
}

/** The files as the guest runs them. */
export function agentSource(): readonly SourceFile[] {
  const files = agentFiles();
  const texts = extension === '.ts' ? stripTypes(files.map(({ text }) => text)) : files.map(({ text }) => text);
  return modules.map((module, index) => ({
    name: `${module}.mjs`,
    text: (texts[index] ?? '').replaceAll(/( from '\.\/[\w-]+)\.[jt]s'/g, "$1.mjs'"),
  }));
}

/** In a process of its own, because Node prints a warning about this function once per process. */
function stripTypes(texts: readonly string[]): readonly string[] {
  const script = `
    const { stripTypeScriptTypes } = require('node:module');
    const texts = JSON.parse(require('node:fs').readFileSync(0, 'utf8'));
    process.stdout.write(JSON.stringify(texts.map((text) => stripTypeScriptTypes(text))));
  `;
  const args = ['--disable-warning=ExperimentalWarning', '--input-type=commonjs', '--eval', script];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, {
    input: JSON.stringify(texts),
    encoding: 'utf8',
    env: { PATH: process.env.PATH },
  });
  if (status === 0) return JSON.parse(stdout) as string[];
  throw new MillraceError('MILLRACE_ERR_FAILED', `vm: strip the agent's types: ${stderr.trim()}`);
}
