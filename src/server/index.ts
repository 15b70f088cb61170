// The control API of a daemon or a backend: its server, and the client that commands use.

export { ApiClient } from './client.ts';
export { connectionModes } from './connection-filter.ts';
export { startBackendServer, startServer } from './server.ts';
export { findSocket, type SocketChoice } from './socket-path.ts';
