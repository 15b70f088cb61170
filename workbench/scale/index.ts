// How a daemon grows: with peers, with hosts, with connections.

export { ALONE_MS, addedBytes, type PeersReport, runPeers, startPeers, timeToPeers } from './peers-trial.ts';
export { PeersWorld } from './peers-world.ts';
