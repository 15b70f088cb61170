// Checks between keys of a config. Each names the keys that it reads, and is skipped when one of
// them is invalid by itself.

import { isIPv6 } from 'node:net';
import { hostname } from 'node:os';
import { MAX_RULES, parseAcceptLines, parseRules } from '../steering/index.ts';
import { didYouMean, formatHostPort, formatSize, isLoopback, isNodeName } from '../text/index.ts';
import type { Problem } from './config-error.ts';
import { MAX_LANES, type ParsedConfig } from './schema.ts';

const MAX_PORT = 65_535;

interface CrossCheck {
  /** Paths such as `channel.ringBytes`. */
  readonly reads: readonly string[];
  readonly check: (config: ParsedConfig) => readonly Problem[];
}

export const crossChecks: readonly CrossCheck[] = [
  { reads: ['node'], check: checkNode },
  { reads: ['listen', 'lanes'], check: checkListen },
  { reads: ['rules'], check: checkRules },
  { reads: ['node', 'peers'], check: checkPeers },
  { reads: ['node', 'peers', 'etcd', 'accept'], check: checkAccept },
  { reads: ['tls', 'insecure', 'peers', 'etcd'], check: checkTrust },
  { reads: ['etcd'], check: checkEtcd },
  { reads: ['devices'], check: checkDevices },
  { reads: ['lanes', 'devices'], check: checkLanes },
  { reads: ['api'], check: checkApi },
  ...channelChecks(),
];

function checkNode({ node }: ParsedConfig): readonly Problem[] {
  if (node !== undefined || isNodeName(hostname())) return [];
  return [{ path: [], message: "node: the host's name is not a valid node name; give node: NAME" }];
}

function checkListen({ lanes, listen: { addresses, proxyPort, controlPort } }: ParsedConfig): readonly Problem[] {
  const problems: Problem[] = [];
  const [first, ...others] = addresses;
  for (const [index, other] of others.entries()) {
    if (index === 0 && first !== undefined && isIPv6(first) !== isIPv6(other)) continue;
    problems.push({
      path: ['listen', 'addresses', index + 1],
      message: 'is a second address of its family; give at most one IPv4 and one IPv6 address',
    });
  }
  const lastPort = proxyPort + (lanes === 'auto' ? MAX_LANES : lanes) - 1;
  if (proxyPort !== 0 && lastPort > MAX_PORT) {
    const message = `leaves no ports for all lanes, which need ${proxyPort} to ${lastPort}; give a lower one`;
    problems.push({ path: ['listen', 'proxyPort'], message });
  }
  if (proxyPort !== 0 && controlPort >= proxyPort && controlPort <= lastPort) {
    const message = `is a port of the lanes, which have ${proxyPort} to ${lastPort} (proxyPort); give another`;
    problems.push({ path: ['listen', 'controlPort'], message });
  }
  return problems;
}

/** In the kernel's table a rule takes one entry for each combination of its port ranges. */
function checkRules({ rules }: ParsedConfig): readonly Problem[] {
  const places = rules
    .flatMap(parseRules)
    .reduce((sum, { ports, sourcePorts }) => sum + (ports?.length ?? 1) * (sourcePorts?.length ?? 1), 0);
  if (places <= MAX_RULES) return [];
  return [{ path: ['rules'], message: `these are ${places} rules and port ranges; give at most ${MAX_RULES}` }];
}

function checkPeers({ node = hostname(), peers }: ParsedConfig): readonly Problem[] {
  const seen = new Set<string>();
  return peers.flatMap(({ name }, index): readonly Problem[] => {
    const path = ['peers', index, 'name'];
    if (name === node) return [{ path, message: `'${name}' is this node itself; leave it out, or set node` }];
    if (seen.has(name)) return [{ path, message: `'${name}' comes twice; give each peer a name of its own` }];
    seen.add(name);
    return [];
  });
}

/**
 * A mistyped name would open what it was to close. With etcd, who the peers are is not known here.
 */
function checkAccept({ node = hostname(), peers, etcd, accept = [] }: ParsedConfig): readonly Problem[] {
  if (etcd !== undefined) return [];
  const names = peers.map(({ name }) => name);
  return accept.flatMap((line, index): readonly Problem[] => {
    const from = parseAcceptLines(line).flatMap((one) => one.from ?? []);
    const wrong = from.find((name) => !name.includes('*') && name !== node && !names.includes(name));
    if (wrong === undefined) return [];
    const message = `no peer is called '${wrong}'${didYouMean(wrong, names)}; correct it, or add it to peers`;
    return [{ path: ['accept', index], message }];
  });
}

function checkTrust({ tls, insecure, peers, etcd }: ParsedConfig): readonly Problem[] {
  if (tls !== undefined && insecure) {
    return [{ path: ['insecure'], message: 'contradicts tls; leave one of the two out' }];
  }
  if (tls !== undefined || insecure || (peers.length === 0 && etcd === undefined)) return [];
  return [
    {
      path: [peers.length > 0 ? 'peers' : 'etcd'],
      message:
        'peers need tls with ca, cert and key (millrace peer cert makes them); give it, or insecure: true in a lab',
    },
  ];
}

function checkEtcd({ etcd }: ParsedConfig): readonly Problem[] {
  if (etcd === undefined) return [];
  const problems: Problem[] = [];
  const pair = (one: 'username' | 'cert', other: 'password' | 'key'): void => {
    if ((etcd[one] === undefined) === (etcd[other] === undefined)) return;
    const [there, missing] = etcd[one] === undefined ? [other, one] : [one, other];
    problems.push({ path: ['etcd', there], message: `is given without ${missing}; give both` });
  };
  pair('username', 'password');
  pair('cert', 'key');
  const file = (['ca', 'cert', 'key'] as const).find((name) => etcd[name] !== undefined);
  if (file !== undefined) {
    for (const [index, endpoint] of etcd.endpoints.entries()) {
      if (endpoint.startsWith('https:')) continue;
      problems.push({
        path: ['etcd', 'endpoints', index],
        message: `'${endpoint}' is not encrypted, but ${file} is given; give an https URL`,
      });
    }
  }
  return problems;
}

function checkDevices({ devices }: ParsedConfig): readonly Problem[] {
  return devices.flatMap((name, index): readonly Problem[] =>
    devices.indexOf(name) === index
      ? []
      : [{ path: ['devices', index], message: `'${name}' comes twice; leave one out` }],
  );
}

function checkLanes({ lanes, devices }: ParsedConfig): readonly Problem[] {
  if (lanes === 'auto' || lanes === 1 || !devices.includes('soft-roce')) return [];
  return [
    {
      path: ['lanes'],
      message: `${lanes} lanes cannot share the one UDP port of soft-roce; give 1 or auto, or another device`,
    },
  ];
}

function checkApi({ api: { http, allowRemote } }: ParsedConfig): readonly Problem[] {
  if (http === false || allowRemote || isLoopback(http.host)) return [];
  const message = `other hosts can reach ${formatHostPort(http)}, and there is no password; give 127.0.0.1:${http.port}, or allowRemote: true`;
  return [{ path: ['api', 'http'], message }];
}

type Channel = ParsedConfig['channel'];

function channelChecks(): readonly CrossCheck[] {
  return [
    atMost('recordBytes', 'ringBytes', ({ ringBytes }) => ringBytes / 8, 'an eighth of ringBytes'),
    atMost('slotBytes', 'recordBytes', ({ recordBytes }) => recordBytes, 'recordBytes'),
    atMost('firstWindowBytes', 'recordBytes', ({ recordBytes }) => recordBytes * 16, 'sixteen times recordBytes'),
    atMost('firstWindowBytes', 'windowBytes', ({ windowBytes }) => windowBytes, 'windowBytes'),
    atMost('windowBytes', 'memoryBytes', ({ memoryBytes }) => memoryBytes, 'memoryBytes'),
    atMost('requestsPerPost', 'sendRequests', ({ sendRequests }) => sendRequests, 'sendRequests'),
    atMost('pollAfter', 'sendRequests', ({ sendRequests }) => Math.floor(sendRequests / 2), 'half of sendRequests'),
    atMost('heartbeatMs', 'deadMs', ({ deadMs }) => Math.floor(deadMs / 2), 'half of deadMs'),
  ];
}

type NumberKey = Exclude<keyof Channel, 'spinUs' | 'sharedReceiveQueue'>;

function atMost(key: NumberKey, other: NumberKey, limitOf: (channel: Channel) => number, words: string): CrossCheck {
  return {
    reads: [`channel.${key}`, `channel.${other}`],
    check: ({ channel }) => {
      const limit = limitOf(channel);
      if (channel[key] <= limit) return [];
      const show = key.endsWith('Bytes') ? formatSize : String;
      const message = `${show(channel[key])} is more than ${words}, which is ${show(limit)}; give less, or more ${other}`;
      return [{ path: ['channel', key], message }];
    },
  };
}
