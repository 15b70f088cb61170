// `millrace doctor`: reports what this host can do, for people or as JSON.

import { diagnose, type Finding, type Report, type Status } from '../doctor/index.ts';
import type { AddCommand } from './command.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import { type Paint, painter } from './paint.ts';
import type { World } from './world.ts';

const MAX_COLUMNS = 100;
const MIN_COLUMNS = 60;
const INDENT = 2;

const codes: Readonly<Record<Report['readiness'], ExitCode>> = {
  ready: exitCode.ok,
  forbidden: exitCode.permission,
  unsupported: exitCode.unsupported,
};

const verdicts: Readonly<Record<Report['readiness'], string>> = {
  ready: 'The demo and the proxy with its defaults run here.',
  forbidden: 'The demo and the proxy need privileges that this user does not have; see the fixes above.',
  unsupported: 'The demo and the proxy with its defaults do not run here; see the fixes above.',
};

const marks = {
  yes: { text: 'yes', style: 'green' },
  no: { text: 'no', style: 'red' },
  unknown: { text: '?', style: 'yellow' },
} as const;

const statuses = {
  works: { text: 'works', style: 'green' },
  partly: { text: 'works partly', style: 'yellow' },
  no: { text: 'not here', style: 'red' },
  unknown: { text: 'could not tell', style: 'yellow' },
} as const satisfies Record<Status, unknown>;

export const addDoctor: AddCommand = (program, { world, finish }) => {
  program
    .command('doctor')
    .summary('Report what this host can and cannot do, why, and what to do about it.')
    .description(
      'Probe what each feature needs by trying it. Each answer is yes, no or unknown (?), with its consequence and the fix.\n' +
        'The exit code is 0 when the demo and the proxy with its defaults run here, 5 when privileges are missing, and\n' +
        '4 when the host lacks something else.',
    )
    .option('--json', 'print the report as one JSON document')
    .action((options: { json?: boolean }) =>
      finish(async () => {
        const report = await diagnose({ signal: world.signal });
        world.stdout.write(
          options.json === true ? `${JSON.stringify(report, null, 2)}\n` : renderReport(report, world),
        );
        return codes[report.readiness];
      }),
    );
};

export function renderReport(report: Report, world: Pick<World, 'stdout' | 'env'>): string {
  const paint = painter(world.stdout, world.env);
  const columns = Math.max(MIN_COLUMNS, Math.min(world.stdout.columns ?? MAX_COLUMNS, MAX_COLUMNS));
  const groups = Map.groupBy(report.findings, (finding) => finding.group);
  const lines: string[] = [];
  for (const [group, findings] of groups) {
    lines.push(paint('bold', group));
    const titleWidth = Math.max(...findings.map((finding) => finding.title.length));
    for (const [at, finding] of findings.entries()) {
      const isFixSaid = at > 0 && finding.fix !== undefined && findings[at - 1]?.fix === finding.fix;
      const shown = isFixSaid ? { ...finding, fix: 'as above' } : finding;
      lines.push(...findingLines(shown, titleWidth, columns, paint));
    }
    lines.push('');
  }
  lines.push(paint('bold', 'what works here'));
  for (const line of featureLines(report, paint, columns - INDENT)) lines.push(' '.repeat(INDENT) + line);
  lines.push('', verdicts[report.readiness]);
  return `${lines.join('\n')}\n`;
}

function findingLines(finding: Finding, titleWidth: number, columns: number, paint: Paint): readonly string[] {
  const mark = marks[finding.answer];
  const indent = INDENT + 'yes'.length + 2;
  const detailAt = indent + titleWidth + 2;
  const [first = '', ...more] = wrap(finding.detail, columns - detailAt);
  const head = `  ${paint(mark.style, mark.text.padEnd(3))}  ${finding.title.padEnd(titleWidth)}  ${first}`.trimEnd();
  const rest = more.map((line) => ' '.repeat(detailAt) + line);
  const advice = (label: string, text: string | undefined): readonly string[] =>
    text === undefined
      ? []
      : wrap(text, columns - indent - 6).map(
          (line, at) => ' '.repeat(indent) + paint('dim', (at === 0 ? label : '').padEnd(6)) + line,
        );
  return [head, ...rest, ...advice('so:', finding.consequence), ...advice('fix:', finding.fix)];
}

/** One line per feature, or more when there are many reasons. */
export function featureLines(report: Report, paint: Paint, columns = MAX_COLUMNS - INDENT): readonly string[] {
  const titles = new Map(report.findings.map((finding) => [finding.id, finding.title]));
  const statusWidth = Math.max(...Object.values(statuses).map((status) => status.text.length));
  const titleWidth = Math.max(...report.features.map((feature) => feature.title.length));
  const at = statusWidth + 2 + titleWidth + 2;
  return report.features.flatMap(({ status, title, because }) => {
    const { text, style } = statuses[status];
    const why = because.map((id) => titles.get(id) ?? id).join(', ');
    const reason = why === '' ? '' : status === 'unknown' ? `not probed: ${why}` : `without: ${why}`;
    const [first = '', ...more] = wrap(reason, columns - at);
    const head = `${paint(style, text.padEnd(statusWidth))}  ${title.padEnd(titleWidth)}  ${first}`.trimEnd();
    return [head, ...more.map((line) => ' '.repeat(at) + line)];
  });
}

/** Breaks lines at spaces, and cuts words that are too long. */
function wrap(text: string, width: number): readonly string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(/\s+/).flatMap((long) => pieces(long, width))) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return line === '' ? lines : [...lines, line];
}

function pieces(word: string, width: number): readonly string[] {
  const parts: string[] = [];
  for (let at = 0; at < word.length; at += width) parts.push(word.slice(at, at + width));
  return parts;
}
