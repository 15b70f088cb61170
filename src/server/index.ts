// The control API of a daemon: its server, and the client that commands use.

export { ApiClient, type ApiClientOptions } from './client.ts';
export { type ConnectionFilter, connectionModes } from './connection-filter.ts';
export { type ControlServer, type ServerOptions, startServer } from './server.ts';
export { DEFAULT_INSTANCE, findSocket, type SocketChoice, socketPathOf } from './socket-path.ts';
