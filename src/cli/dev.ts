// `millrace dev`: lists the RDMA devices and their attributes, as ibv_devinfo does.

import { type Device, type DeviceInfo, listDevices, openDevice } from '../providers/index.ts';
import type { AddCommand } from './command.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import { type Paint, painter } from './paint.ts';
import type { World } from './world.ts';

interface Options {
  readonly json?: boolean;
}

/** A device that cannot be opened is listed with the reason. */
interface Shown extends DeviceInfo {
  readonly attributes?: Device['attributes'];
  readonly ports?: Device['ports'];
  readonly problem?: string;
}

export const addDev: AddCommand = (program, { world, finish }) => {
  const dev = program.command('dev').description('List the RDMA devices of this host, as ibv_devinfo does.');
  dev
    .command('show', { isDefault: true })
    .description('Show all devices of all providers, or one: attributes, ports and GIDs.')
    .argument('[name]', 'a device name')
    .option('--json', 'print one JSON document')
    .action((name: string | undefined, options: Options) => finish(async () => show(name, options, world)));
};

function show(name: string | undefined, options: Options, world: World): ExitCode {
  const devices = name === undefined ? listDevices().map(describe) : [describeNamed(name)];
  if (options.json) {
    world.stdout.write(`${JSON.stringify({ v: 1, devices })}\n`);
  } else {
    const paint = painter(world.stdout, world.env);
    const blocks = devices.map((device) => linesOf(device, paint).join('\n'));
    world.stdout.write(devices.length === 0 ? 'no RDMA devices\n' : `${blocks.join('\n\n')}\n`);
  }
  return devices.length === 0 || devices.some(({ problem }) => problem !== undefined) ? exitCode.failed : exitCode.ok;
}

function describe(info: DeviceInfo): Shown {
  try {
    return describeNamed(info.name);
  } catch (error) {
    return { ...info, problem: error instanceof Error ? error.message : String(error) };
  }
}

function describeNamed(name: string): Shown {
  using device = openDevice(name);
  const { info, attributes, ports } = device;
  return { ...info, attributes, ports };
}

function linesOf({ name, provider, guid, transport, attributes, ports = [], problem }: Shown, paint: Paint): string[] {
  const lines = [
    `hca_id: ${paint('bold', name)}`,
    field('provider', provider),
    field('transport', transport),
    field('node_guid', guid),
  ];
  if (problem !== undefined) lines.push(field('problem', paint('red', problem)));
  for (const [key, value] of Object.entries(attributes ?? {})) lines.push(field(snakeCase(key), String(value)));
  lines.push(...(ports.length === 0 ? [] : [field('phys_port_cnt', String(ports.length))]));
  for (const { number, gids, gidTypes = [], ...port } of ports) {
    lines.push(`  port: ${number}`);
    for (const [key, value] of Object.entries(port)) lines.push(field(snakeCase(key), String(value), 4));
    for (const [index, gid] of gids.entries()) {
      const type = gidTypes[index] ?? '';
      if (gid !== '::') lines.push(field(`GID[${index}]`, type === '' ? gid : `${gid}, ${type}`, 4));
    }
  }
  return lines;
}

function field(name: string, value: string, indent = 2): string {
  return `${' '.repeat(indent)}${`${name}:`.padEnd(24 - indent)}${value}`;
}

/** Spelled as ibv_devinfo does: maxQpRequests is max_qp_requests. */
function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
