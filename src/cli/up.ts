// `millrace up`: runs the daemon in the foreground until it is stopped.

import { loadConfig } from '../config/index.ts';
import { dropPrivileges, LateSource, ProxyDaemon } from '../proxy/index.ts';
import { startServer } from '../server/index.ts';
import { Logs, type LogsOptions } from '../telemetry/index.ts';
import type { AddCommand } from './command.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import { stopped } from './stopped.ts';
import type { World } from './world.ts';

interface Options {
  readonly config: string;
  readonly json?: boolean;
}

const examples = `
Signals: on SIGHUP the daemon reads its config again. On SIGTERM or SIGINT it lets carried connections end for
drainSeconds and then stops; a second signal resets them at once.

Examples:
  millrace config check /etc/millrace/config.yaml && millrace up --config /etc/millrace/config.yaml
  millrace conn; millrace peer; millrace top`;

export const addUp: AddCommand = (program, { world, finish }) => {
  program
    .command('up')
    .description('Run the daemon, which carries connections of this host to its peers over RDMA.')
    .requiredOption('--config <file>', 'the config file (YAML); millrace config schema describes it')
    .option('--json', 'print one line of JSON when it is ready, for programs')
    .addHelpText('after', examples)
    .action((options: Options) => finish(() => up(options, world)));
};

async function up(options: Options, world: World): Promise<ExitCode> {
  const { config } = await loadConfig(options.config, world.env);
  using logs = new Logs(logsOptions(config));
  const { socket, http } = config.api;
  // First: a second daemon of the same instance then fails on this socket, not on a port that is in
  // use.
  const source = new LateSource(config);
  await using server = await startServer({ source, socketPath: socket, ...(http !== false && { http }) });
  await using daemon = await ProxyDaemon.start({
    config,
    reload: async () => {
      const next = (await loadConfig(options.config, world.env)).config;
      logs.level = next.log.level;
      return next;
    },
  });
  source.use(daemon.source);
  dropPrivileges();
  if (options.json) {
    const { pid } = process;
    world.stdout.write(`${JSON.stringify({ event: 'ready', pid, socket: server.socketPath, url: server.url })}\n`);
  }
  const reload = (): void => {
    daemon
      .reload()
      .catch((error: unknown) => logs.logger.error(error instanceof Error ? error.message : String(error)));
  };
  process.on('SIGHUP', reload);
  const again = new AbortController();
  const hurry = (): void => again.abort();
  try {
    await Promise.race([stopped(world.signal), daemon.failed]);
    process.once('SIGTERM', hurry);
    process.once('SIGINT', hurry);
    await daemon.drain(again.signal);
  } finally {
    process.off('SIGHUP', reload);
    process.off('SIGTERM', hurry);
    process.off('SIGINT', hurry);
  }
  return exitCode.ok;
}

function logsOptions({ log, node }: Awaited<ReturnType<typeof loadConfig>>['config']): LogsOptions {
  const { level, format } = log;
  const text = format === 'pretty' ? 'text' : format;
  return { level, node, ...(text !== 'auto' && { format: text }) };
}
