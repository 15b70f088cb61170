// `millrace config`: checks a config file, shows it with all defaults, and prints the schema for
// editors.

import { stringify } from 'yaml';
import { ConfigError, configJsonSchema, type LoadedConfig, loadConfig, shownConfig } from '../config/index.ts';
import { readTlsMaterial } from '../tls/index.ts';
import type { AddCommand } from './command.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import type { World } from './world.ts';

const examples = `
Examples:
  millrace config check /etc/millrace/millrace.yaml
  millrace config show /etc/millrace/millrace.yaml --json | jq .config.channel
  millrace config schema > millrace.schema.json      # for editors: # yaml-language-server: $schema=…`;

export const addConfig: AddCommand = (program, { world, finish }) => {
  const config = program
    .command('config')
    .description("Check a daemon's config file, and show it with all defaults.")
    .addHelpText('after', examples);
  config
    .command('check')
    .description('Print ok, or all problems as FILE:LINE:COLUMN: key: problem.')
    .argument('<file>', 'the config file (YAML)')
    .action((file: string) => finish(() => withConfig(file, world, check)));
  config
    .command('show')
    .description('Show every key with its value, defaults included; passwords are masked.')
    .argument('<file>', 'the config file (YAML)')
    .option('--json', 'print JSON, for programs')
    .action((file: string, options: { readonly json?: true }) =>
      finish(() => withConfig(file, world, (loaded) => show(loaded, options.json === true, world))),
    );
  config
    .command('schema')
    .description('Print the JSON schema of the config file, for editors.')
    .action(() =>
      finish(async () => {
        world.stdout.write(`${JSON.stringify(configJsonSchema(), null, 2)}\n`);
        return exitCode.ok;
      }),
    );
};

type Use = (loaded: LoadedConfig, world: World) => ExitCode | Promise<ExitCode>;

async function withConfig(file: string, world: World, use: Use): Promise<ExitCode> {
  let loaded: LoadedConfig;
  try {
    loaded = await loadConfig(file, world.env);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    // The line starts with the file's name, so that editors and terminals can jump to the place.
    world.stderr.write(`${error.message}\n`);
    return exitCode.usage;
  }
  return use(loaded, world);
}

async function check({ path, config }: LoadedConfig, world: World): Promise<ExitCode> {
  if (config.tls !== undefined) await readTlsMaterial(config.tls);
  world.stdout.write(`${path}: ok\n`);
  return exitCode.ok;
}

function show({ path, config }: LoadedConfig, isJson: boolean, world: World): ExitCode {
  const shown = shownConfig(config);
  world.stdout.write(isJson ? `${JSON.stringify({ v: 1, path, config: shown })}\n` : stringify(shown));
  return exitCode.ok;
}
