// The zod schema of the config file: each key with its type, limits, default and a description for
// the JSON schema.

import { z } from 'zod';
import * as field from './fields.ts';

const KiB = 1024;
const MiB = 1024 * KiB;
const GiB = 1024 * MiB;
/** As many as the kernel's table has places for. */
export const MAX_LANES = 64;
const mapping = { error: 'a mapping of keys to values' };
const list = { error: 'a list' };

const listen = z.strictObject(
  {
    addresses: z
      .array(field.ownAddress(), list)
      .default([])
      .describe(
        "addresses of this host that programs are steered to, at most one of each family; default: the host's first of each",
      ),
    proxyPort: field
      .port()
      .default(4800)
      .describe(
        'where steered connections arrive: the first lane’s port, one more for each other lane; lanes listen on other free ports besides; 0: on free ports only',
      ),
    controlPort: field.port().default(field.DEFAULT_CONTROL_PORT).describe('where peers connect; 0: any free port'),
  },
  mapping,
);

const peer = z.strictObject(
  {
    name: field.nodeName().describe("the peer's node name, as in its certificate"),
    address: field.peerAddress().describe('host, host:port or [ipv6]:port'),
  },
  { error: 'a mapping of name and address' },
);

const etcd = z.strictObject(
  {
    endpoints: z
      .array(field.etcdEndpoint(), list)
      .min(1, { error: 'at least one URL' })
      .default(['http://127.0.0.1:2379'])
      .describe('URLs of the members, tried in turn'),
    prefix: field
      .text('a prefix for keys, as /millrace', (given) => /^\/[!-~]{0,199}[!-.0-~]$/.test(given))
      .default('/millrace')
      .describe('what the keys of this mesh start with'),
    leaseSeconds: field.whole(2, 3600).default(10).describe('a node that died is forgotten after so long'),
    username: field.text('a user name').optional(),
    password: field.text('a password').optional(),
    ca: field.file("the authority's certificate").optional().describe('who signs the certificates of etcd'),
    cert: field.file('the certificate').optional().describe('client certificate'),
    key: field.file('the key').optional().describe('its key'),
  },
  mapping,
);

const tls = z.strictObject(
  {
    ca: field.file("the authority's certificate").describe('who signs the certificates of peers'),
    cert: field.file('the certificate').describe("this node's certificate"),
    key: field.file('the key').describe('its key'),
    crl: field
      .file('the revocation list')
      .optional()
      .describe("revocation lists of the authorities; peers' certificates that are on one are refused"),
  },
  mapping,
);

const device = z.strictObject(
  {
    address: field
      .address()
      .optional()
      .describe('address of soft-roce and soft-tcp; default: the first listen address'),
    runtimeDir: field.file('the sockets of soft-shm').optional().describe('folder where soft-shm peers meet'),
    gidIndex: field.whole(0, 255).optional().describe("row of the port's GID table; default: the device's choice"),
    mtu: z
      .union(
        [256, 512, 1024, 2048, 4096].map((bytes) => z.literal(bytes)),
        { error: '256, 512, 1024, 2048 or 4096' },
      )
      .optional()
      .describe("path MTU in bytes; default: the port's"),
  },
  mapping,
);

const channel = z.strictObject(
  {
    ringBytes: field
      .size({ least: 64 * KiB, most: GiB, powerOfTwo: true })
      .prefault('4MiB')
      .describe('ring of each direction, for each lane and peer'),
    slotBytes: field
      .size({ least: 64, most: 4096, powerOfTwo: true })
      .prefault(256)
      .describe('what a record is rounded up to'),
    recordBytes: field
      .size({ least: 4 * KiB, most: 128 * MiB })
      .prefault('256KiB')
      .describe('largest payload of a record'),
    dataQps: field.whole(1, 16).default(2).describe('queue pairs for data; one more carries the index'),
    sendRequests: field.whole(16, 16_384).default(256).describe("places in each queue pair's send queue"),
    requestsPerPost: field.whole(1, 256).default(32).describe('linked WRITEs in one post'),
    pollAfter: field.whole(1, 8192).default(64).describe('completions are polled after this many requests'),
    recordsPerSend: field.whole(1, 256).default(32).describe('records gathered into one sendmsg'),
    receives: field.whole(4, 4096).default(64).describe('posted receives for notifications'),
    sharedReceiveQueue: field.flag().default(true).describe('one receive queue for all queue pairs of a lane'),
    firstWindowBytes: field
      .size({ least: 4 * KiB, most: GiB })
      .prefault('64KiB')
      .describe('what a stream may send before it is granted more'),
    windowBytes: field
      .size({ least: 4 * KiB, most: GiB })
      .prefault('1MiB')
      .describe('what that credit may grow to'),
    memoryBytes: field
      .size({ least: MiB, most: 1024 * GiB })
      .prefault('64MiB')
      .describe('budget of bytes held for slow programs, all streams of the daemon'),
    spinUs: field.wholeOrAuto(0, 10_000).default('auto').describe('how long a lane spins before it sleeps'),
    heartbeatMs: field.whole(10, 60_000).default(1000).describe('interval of the pings to a peer'),
    deadMs: field.whole(50, 600_000).default(4000).describe('a peer that was silent for so long counts as dead'),
    recoverySeconds: field
      .seconds(0, 3600)
      .default(10)
      .describe('how long streams wait for a broken peer to come back'),
    idleSeconds: field
      .seconds(1, 86_400)
      .default(300)
      .describe('a link that no connection has used for so long is given back; the daemon that dials decides'),
  },
  mapping,
);

const direct = z.strictObject(
  {
    enabled: field.flag().default(true).describe('connections of programs that have the library may leave TCP'),
    memoryBytes: field
      .size({ least: MiB, most: 1024 * GiB })
      .prefault('4GiB')
      .describe('what the rings of all such connections may have together; two for each'),
    ringBytes: field
      .size({ least: 4 * KiB, most: 16 * MiB, powerOfTwo: true })
      .prefault('1MiB')
      .describe('ring of each direction of such a connection; memory is used as bytes wait in it'),
  },
  mapping,
);

const api = z.strictObject(
  {
    socket: field
      .file('the control socket')
      .refine((path) => path.startsWith('/') && Buffer.byteLength(path) < 108, {
        error: 'an absolute path of at most 107 bytes',
      })
      .optional()
      .describe('control socket; default: /run/millrace/INSTANCE.sock'),
    http: z
      .union([z.literal(false), field.httpAddress()], { error: 'an address and a port, as 127.0.0.1:4792, or false' })
      .prefault('127.0.0.1:4792')
      .describe('metrics, health and status over HTTP; false: none'),
    allowRemote: field.flag().default(false).describe('allows an http address that other hosts reach'),
  },
  mapping,
);

const watchdog = z.strictObject(
  {
    stuckSeconds: field
      .seconds(1, 3600)
      .default(5)
      .describe('a thread of the daemon that gives no sign of life for so long is reported, with its stack'),
    restartSeconds: field
      .seconds(0, 3600)
      .default(30)
      .describe('after so long the daemon ends, so that its supervisor starts it again; 0: never'),
  },
  mapping,
);

const log = z.strictObject(
  {
    level: field.oneOf('debug', 'info', 'warn', 'error', 'silent').default('info'),
    format: field
      .oneOf('auto', 'json', 'pretty')
      .default('auto')
      .describe('auto: pretty on a terminal, json elsewhere'),
  },
  mapping,
);

export const configSchema = z.strictObject(
  {
    node: field.nodeName().optional().describe("name of this node; default: the host's name"),
    instance: field.instanceName().default('millrace').describe('name of the steering and of the control socket'),
    cgroup: field.cgroup().default('/').describe('programs in this cgroup and below are steered'),
    listen: listen.prefault({}),
    rules: z.array(field.rule(), list).default([]).describe('what is carried, and how; the first that matches decides'),
    peers: z.array(peer, list).default([]).describe('the other nodes'),
    accept: z
      .array(field.acceptLine(), list)
      .optional()
      .describe(
        'which peers may reach which listeners of this host; the first that matches decides, and what none is about is not accepted; default: all',
      ),
    etcd: etcd.optional().describe('finds the other nodes by etcd; not used unless it is given'),
    tls: tls.optional().describe('mutual TLS between peers; files relative to the config file'),
    insecure: field
      .flag()
      .default(false)
      .describe('peers talk without TLS, and are identified by their IP addresses alone'),
    admission: field
      .oneOf('packets', 'peers')
      .default('packets')
      .describe(
        'packets: a destination is carried only while packets from the same place get there; peers: wherever a peer says that it listens',
      ),
    idleDestinations: field
      .whole(0, 256)
      .default(8)
      .describe(
        'with admission packets: so many destinations that nobody uses are asked about, and are carried from their first connect on',
      ),
    devices: z
      .array(field.deviceName(), list)
      .min(1, { error: 'at least one device' })
      .default(['soft-shm', 'soft-tcp'])
      .describe('in order of preference: soft-shm, soft-roce, soft-tcp, or libibverbs devices'),
    device: device.prefault({}),
    lanes: field
      .wholeOrAuto(1, MAX_LANES)
      .default('auto')
      .describe('worker threads; auto: half of the processors, at least 1'),
    channel: channel.prefault({}),
    direct: direct.prefault({}),
    api: api.prefault({}),
    log: log.prefault({}),
    watchdog: watchdog.prefault({}),
    drainSeconds: field
      .seconds(0, 3600)
      .default(10)
      .describe('how long carried connections may go on after SIGTERM; direct ones go back to TCP at once'),
    socketBufferBytes: field
      .size({ least: 4 * KiB, most: GiB })
      .prefault('2MiB')
      .describe("buffers of the daemon's own sockets towards programs"),
    bigSegments: field
      .flag()
      .default(true)
      .describe('lets TCP hand over up to 512 KiB at once on the loopback device while the daemon runs'),
  },
  mapping,
);

export type ParsedConfig = z.output<typeof configSchema>;
