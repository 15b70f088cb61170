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
export { ConfigError, type PlacedProblem } from './config-error.ts';
export { formatHostPort, type HostPort, parseHostPort } from './host-port.ts';
export { configJsonSchema } from './json-schema.ts';
export { type LoadedConfig, loadConfig } from './load.ts';
export { parseConfig } from './parse.ts';
export { shownConfig } from './shown.ts';
export { formatSize, parseSize } from './size.ts';
export { readTlsMaterial, type TlsMaterial } from './tls-material.ts';
