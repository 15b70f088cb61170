// The control API of a daemon: its server, and the client that commands use.

export { ApiClient, type ApiClientOptions } from './client.ts';
export { type ConnectionFilter, connectionModes } from './connection-filter.ts';
export {
  type BackendServerOptions,
  type ControlServer,
  type ServerOptions,
  startBackendServer,
  startServer,
} from './server.ts';
export { DEFAULT_INSTANCE, findSocket, runDirOf, type SocketChoice, socketPathOf } from './socket-path.ts';
