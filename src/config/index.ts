// The config file of a daemon: read, checked, compared.

export { changedKeys } from './changes.ts';
export type { ChannelConfig, Config, DeviceConfig } from './config.ts';
export { ConfigError } from './config-error.ts';
export { configJsonSchema } from './json-schema.ts';
export { type LoadedConfig, loadConfig } from './load.ts';
export { parseConfig } from './parse.ts';
export { shownConfig } from './shown.ts';
