// Programs of other projects: each is run once with --version.

import { answer, type Finding, type Question } from './finding.ts';
import type { Machine } from './machine.ts';

const MAX_DETAIL = 50;

interface ToolQuestion extends Question {
  /** Names to try, best first. */
  readonly commands: readonly string[];
}

type ToolProbe = (machine: Machine, signal?: AbortSignal) => Promise<Finding>;

/** A probe that asks a program for its version. */
export function toolQuestion(question: ToolQuestion): ToolProbe {
  return (machine, signal) =>
    answer(
      question,
      async () => {
        let refusal: string | null = null;
        for (const command of question.commands) {
          const output = await machine.run(command, ['--version']);
          if (output === null) continue;
          const [line = ''] = `${output.stdout}\n${output.stderr}`.trim().split('\n');
          if (output.isOk) return { answer: 'yes', detail: shorten(line) };
          refusal = `${command} --version failed: ${line}`;
        }
        if (refusal !== null) return { answer: 'unknown', detail: refusal };
        return { answer: 'no', detail: `no ${question.commands.join(' or ')} in PATH` };
      },
      signal,
    );
}

/** Some programs print more than their version in that line. */
function shorten(line: string): string {
  if (line.length <= MAX_DETAIL) return line;
  return `${line.slice(0, line.lastIndexOf(' ', MAX_DETAIL))} …`;
}

const tools: readonly ToolProbe[] = [
  toolQuestion({
    id: 'clang',
    group: 'tools',
    title: 'clang',
    neededBy: [],
    consequence: 'the BPF programs cannot be built from their sources (an installed package contains them)',
    fix: 'apt-get install clang-19',
    commands: ['clang-19', 'clang'],
  }),
  toolQuestion({
    id: 'bpftool',
    group: 'tools',
    title: 'bpftool',
    neededBy: [],
    consequence: 'loaded programs and maps cannot be inspected with the usual tool; millrace itself does not use it',
    fix: 'apt-get install bpftool',
    commands: ['bpftool'],
  }),
];

export async function probeTools(machine: Machine, signal?: AbortSignal): Promise<readonly Finding[]> {
  return Promise.all(tools.map((probe) => probe(machine, signal)));
}
