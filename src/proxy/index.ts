// The proxy: a daemon per host that carries the connections of its programs to its peers over RDMA.

export { ProxyDaemon, type ProxyDaemonOptions } from './daemon.ts';
export { LateSource } from './late-source.ts';
export type * from './status.ts';
