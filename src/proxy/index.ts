// The proxy: a daemon per host that carries the connections of its programs to its peers over RDMA.

export { BIG_BYTES, BigSegments } from './big-segments.ts';
export { ProxyDaemon, type ProxyDaemonOptions } from './daemon.ts';
export { LateSource } from './late-source.ts';
export { daemonRules } from './rules.ts';
