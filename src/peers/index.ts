// Who the other nodes are: from the config, from etcd, or both.

export { type DirectoryPeer, type PeerDirectory, PeerList, type PeersListener } from './directory.ts';
export { EtcdDirectory, type EtcdDirectoryOptions } from './etcd-directory.ts';
export type { EtcdTls } from './etcd-http.ts';
export { mergeDirectories } from './merged-directory.ts';
export { encodeNodeValue, nodesPrefix } from './node-entry.ts';
export { StaticDirectory } from './static-directory.ts';
