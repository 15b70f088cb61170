// The proxy: one daemon per host that carries the connections of its programs to its peers over
// RDMA.

export { ProxyDaemon } from './daemon.ts';
export { LateSource } from './late-source.ts';
export { dropPrivileges } from './privileges.ts';
