// The config of a daemon: read, checked, compared.

export { type ChangedKeys, changedKeys, reloadableKeys } from './changes.ts';
export {
  type ChannelConfig,
  type Config,
  type ConfigPeer,
  type DeviceConfig,
  defaultSocket,
  type Environment,
  type EtcdConfig,
  runFolder,
  type TlsConfig,
} from './config.ts';
export { briefly, ConfigError, type PlacedProblem } from './config-error.ts';
export { configJsonSchema } from './json-schema.ts';
export { type LoadedConfig, loadConfig } from './load.ts';
export { parseConfig } from './parse.ts';
export { shownConfig } from './shown.ts';
