// The reports of `millrace scale` as tables for people.

import { bytesText, table } from '../../src/cli/index.ts';
import type { ConnectionsReport, MeshReport, PeersReport } from '../scale/index.ts';

type Cells = readonly (readonly string[])[];

export function peersLines(report: PeersReport): readonly string[] {
  const { alone, idle, peers } = report;
  const each = (idle.residentBytes - alone.residentBytes) / peers;
  const rows: Cells = [
    ['memory alone', bytesText(alone.residentBytes)],
    [`memory with ${peers} idle peers`, bytesText(idle.residentBytes), `${bytesText(each)} each`],
    ['descriptors alone, with peers', `${alone.descriptors}, ${idle.descriptors}`],
    ['mappings alone, with peers', `${alone.mappings}, ${idle.mappings}`],
    ['processor while idle', coresText(report.idleCores)],
    ['until all were up', msText(report.upMs), `${report.attempts} attempts failed on the way`],
    ['processor until then', `${report.upCpuSeconds.toFixed(2)} s`],
    ['a new listener, first peer', ...spreadText(report.firstKnownMs)],
    ['a new listener, last peer', ...spreadText(report.lastKnownMs)],
    [
      `processor with ${report.listensPerSecond.toFixed(0)} listens a second`,
      coresText(report.listenCores),
      `${report.listenMainCores.toFixed(3)} of them in the main thread`,
    ],
    ['a real peer’s listener, kernel', ...spreadText(report.realAnnouncedMs)],
    ['a played peer’s listener, kernel', ...spreadText(report.playedAnnouncedMs)],
    ...Object.entries(report.losts).map(([reason, count]) => ['connections lost', String(count), reason]),
  ];
  return table([`one daemon, ${peers} peers of ${report.endpointsEach} endpoints`, '', ''], rows);
}

export function meshLines(report: MeshReport): readonly string[] {
  const [first, second] = report.talks;
  const talkText = (talk: MeshReport['talks'][number] | undefined): readonly string[] =>
    talk === undefined
      ? ['-']
      : [`${talk.carried} of ${talk.expected} carried`, `${msText(talk.ms)}, attempt ${talk.attempts}`];
  const rows: Cells = [
    ['until all daemons had met', msText(report.metMs)],
    ['until each kernel knew of all servers', msText(report.knownMs)],
    ['all talk with all', ...talkText(first)],
    [`${report.killed} killed and started again, until all is known`, msText(report.againMs)],
    ['all talk with all again', ...talkText(second)],
    ['memory of all daemons', bytesText(report.residentBytes), `${bytesText(report.residentBytesEach)} each`],
    ['processor time of those at the end', `${report.cpuSeconds.toFixed(1)} s`],
    ['bounded by', report.bound],
    ...report.problems.map((problem) => ['problem', problem]),
  ];
  return table([`${report.hosts} hosts`, '', ''], rows);
}

export function connectionsLines(report: ConnectionsReport): readonly string[] {
  const { goal, open, carried, answered, openMs, client, server } = report;
  const daemonText = (one: ConnectionsReport['client']): readonly string[] => [
    `${bytesText(one.residentBytes)}, ${bytesText(one.addedBytes / Math.max(1, open))} a connection`,
    `${one.descriptors} descriptors, ${one.cpuSeconds.toFixed(1)} s of processor time`,
  ];
  const rows: Cells = [
    [
      'open at once',
      `${open}, ${carried} of them carried`,
      `${msText(openMs)}, ${((open * 1000) / openMs).toFixed(0)} a second`,
    ],
    ['answered once more', String(answered)],
    ['daemon of the clients', ...daemonText(client)],
    ['daemon of the servers', ...daemonText(server)],
    ['the kernel’s memory for TCP', bytesText(report.kernelBytes)],
    ['bounded by', report.bound === '' ? 'the goal' : report.bound],
  ];
  return table([`${goal} connections through one pair of daemons`, '', ''], rows);
}

function spreadText(values: readonly number[]): readonly string[] {
  if (values.length === 0) return ['-', 'the daemon announces peers only when they have links'];
  const sorted = values.toSorted((left, right) => left - right);
  return [msText(sorted[sorted.length >> 1] ?? 0), `${msText(sorted[0] ?? 0)} to ${msText(sorted.at(-1) ?? 0)}`];
}

function coresText(cores: number): string {
  return `${cores.toFixed(3)} cores`;
}

function msText(ms: number): string {
  return ms < 100 ? `${ms.toFixed(1)} ms` : ms < 10_000 ? `${ms.toFixed(0)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
