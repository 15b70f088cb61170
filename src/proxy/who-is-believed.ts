// Whom a daemon takes for a peer with a config, in one line for the log.

import type { Config } from '../config/index.ts';

export function whoIsBelieved({ tls, peers, etcd }: Pick<Config, 'tls' | 'peers' | 'etcd'>): string {
  if (peers.length === 0 && etcd === undefined) return 'nobody is believed to be a peer: the config has none';
  const who =
    tls === undefined
      ? 'anybody who reaches the control port from the IP address of a peer and says its name (insecure)'
      : `whoever shows a certificate by tls.ca for the name of a peer${tls.crl === undefined ? '' : ' that is not on tls.crl'}`;
  const more =
    etcd === undefined ? '' : `; whoever may write ${etcd.prefix}/nodes in etcd says who the peers are, and where`;
  return `believed to be a peer: ${who}${more}`;
}
