// How a daemon grows: with peers, with hosts, with connections.

export { type ConnectionsReport, runConnections } from './connections-trial.ts';
export { hostsHere, type MeshReport, runMesh } from './mesh-trial.ts';
export { ALONE_MS, addedBytes, type PeersReport, runPeers, startPeers, timeToPeers } from './peers-trial.ts';
export { PeersWorld } from './peers-world.ts';
