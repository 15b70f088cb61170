// The daemon's side of direct connections: programs of one host whose bytes go through shared
// rings.

export { DirectServer } from './direct-server.ts';
