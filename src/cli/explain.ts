// `millrace explain`: says why a connection is or is not carried or direct. `millrace reload`: lets
// a daemon read its config again.

import { printable } from '../text/index.ts';
import type { AddCommand } from './command.ts';
import { addDaemonOptions, clientOf, type DaemonOptions } from './daemon-options.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import type { World } from './world.ts';

const examples = `
Examples:
  millrace explain 4711                                 the last connects of a process, and what it has offered
  millrace explain '10.0.0.1:40000->10.0.0.2:6379'      one connection
  millrace explain 'b->10.0.0.2:6379'                   whether peer b may reach a listener of this host`;

export const addExplain: AddCommand = (program, { world, finish }) => {
  const explain = program
    .command('explain')
    .description(
      'Explain why a connection is or is not carried, or direct: the checks in order, and the one that decided.',
    )
    .argument('<which>', 'a process id, ADDR:PORT->ADDR:PORT, or PEER->ADDR:PORT')
    .addHelpText('after', examples);
  addDaemonOptions(explain).action((which: string, options: DaemonOptions) =>
    finish(() => show(options, world, (client) => client.explain(which, { signal: world.signal }))),
  );
  const reload = program
    .command('reload')
    .description('Let the daemon read its config again, as SIGHUP does, and print what was taken over.');
  addDaemonOptions(reload).action((options: DaemonOptions) =>
    finish(() => show(options, world, (client) => client.reload({ signal: world.signal }))),
  );
};

async function show(
  options: DaemonOptions,
  world: World,
  ask: (client: Awaited<ReturnType<typeof clientOf>>) => Promise<readonly string[]>,
): Promise<ExitCode> {
  for (const line of await ask(await clientOf(options, world))) world.stdout.write(`${printable(line)}\n`);
  return exitCode.ok;
}
