// `millrace guest show`: lists the guests of a backend with what each uses and does.

import type { Command } from 'commander';
import { UsageError } from '../errors.ts';
import { ApiClient } from '../server/index.ts';
import type { BackendStatus, GuestStatus } from '../status/index.ts';
import { printable } from '../text/index.ts';
import { backendPaths } from './backend-paths.ts';
import type { CommandContext } from './command.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import { ageText, bytesText, countText, microsecondsText } from './figures.ts';
import { type Paint, painter, table } from './paint.ts';
import type { World } from './world.ts';

interface Options {
  readonly api?: string;
  readonly json?: true;
}

export function addGuestShow(guest: Command, { world, finish }: CommandContext): void {
  guest
    .command('show', { isDefault: true })
    .description('List all guests, or show one in full.')
    .argument('[number]', 'a guest’s number')
    .option('--api <path>', 'the backend’s control socket (default: /run/millrace/backend/api)')
    .option('--json', 'print JSON, for programs')
    .action((number: string | undefined, options: Options) => finish(() => showGuests(number, options, world)));
}

async function showGuests(number: string | undefined, options: Options, world: World): Promise<ExitCode> {
  const who = { name: 'backend', command: 'millrace backend' };
  const client = new ApiClient({ socketPath: options.api ?? backendPaths(world.env).api, who });
  const status = await client.guests({ signal: world.signal });
  const shown = number === undefined ? status.guests : status.guests.filter(({ id }) => String(id) === number);
  if (number !== undefined && shown.length === 0) {
    const ids = status.guests.map(({ id }) => id).join(', ');
    throw new UsageError(
      `there is no guest ${number}; ${ids === '' ? 'no guest is connected' : `connected are ${ids}`}`,
    );
  }
  const paint = painter(world.stdout, world.env);
  if (options.json) world.stdout.write(`${JSON.stringify({ v: 1, ...status, guests: shown })}\n`);
  else if (number !== undefined) for (const guest of shown) world.stdout.write(`${detailOf(guest, status, paint)}\n`);
  else world.stdout.write(`${summaryOf(status)}\n${shown.length === 0 ? '' : `\n${listOf(shown, paint)}\n`}`);
  return exitCode.ok;
}

function summaryOf({ socketPath, devices, guests, maxGuests, accepted, refused, dropped }: BackendStatus): string {
  const counts = `${guests.length} of ${maxGuests} guests; ${accepted} accepted so far, ${refused} refused, ${dropped} dropped`;
  return `lending ${devices.join(', ')} at ${socketPath}\n${counts}`;
}

const header = [
  'Guest',
  'Who',
  'Name',
  'For',
  'Objects',
  'Memory',
  'Calls/s',
  'Posts/s',
  'Done/s',
  'Wait',
  'CPU',
  'Errors',
] as const;
const align = header.map((_, index) => (index === 1 || index === 2 ? 'left' : 'right'));

function listOf(guests: readonly GuestStatus[], paint: Paint): string {
  const rows = guests.map(({ id, peer, label, connectedMs, objects, used, perSecond, counts, ...rest }) => [
    String(id),
    printable(peer),
    label === '' ? '-' : printable(label),
    ageText(connectedMs),
    String(objects),
    bytesText(used.memoryBytes),
    countText(perSecond.calls),
    countText(perSecond.posted),
    countText(perSecond.completions),
    microsecondsText(rest.averageWaitNs / 1000),
    `${rest.cpuSeconds.toFixed(1)} s`,
    String(counts.failedCalls + counts.failedCompletions),
  ]);
  const [title = '', ...lines] = table(header, rows, align);
  return [paint('bold', title), ...lines].join('\n');
}

function detailOf(guest: GuestStatus, { limits }: BackendStatus, paint: Paint): string {
  const { counts, used } = guest;
  const share = (kind: keyof typeof used): string => {
    const text = kind === 'memoryBytes' ? bytesText : countText;
    return `${text(used[kind])} of ${text(limits[kind])}`;
  };
  const kinds = (Object.keys(used) as (keyof typeof used)[]).map((kind) => field(kind, share(kind)));
  return [
    paint('bold', `guest ${guest.id}`),
    field('who', printable(guest.peer)),
    field('name', guest.label === '' ? '-' : printable(guest.label)),
    field('here for', ageText(guest.connectedMs)),
    field('calls', `${countText(counts.calls)}, ${counts.failedCalls} failed`),
    field('posted', countText(counts.posted)),
    field('completions', `${countText(counts.completions)}, ${counts.failedCompletions} failed`),
    field('events', countText(counts.events)),
    field('sleeps', `${countText(guest.sleeps)} in ${countText(guest.turns)} turns`),
    field('CPU', `${guest.cpuSeconds.toFixed(1)} s`),
    '',
    paint('bold', 'has'),
    ...kinds,
  ].join('\n');
}

function field(name: string, value: string): string {
  return `  ${name.padEnd(16)}${value}`;
}
