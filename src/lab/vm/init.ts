// The first program of a guest: mounts the host's root as its own, and starts the agent in it.

/** The paths in the image that the script below uses. */
export const imagePaths = {
  modules: 'modules',
  rootModules: 'etc/root-modules',
  networkModules: 'etc/network-modules',
  /** For each extra module, a file with the names of the modules to load. */
  extraModules: 'etc/extra-modules',
  agent: 'agent',
} as const;

export const agentPort = 'millrace.agent';
export const rootTag = 'millrace-root';
export const shareTag = 'millrace-share';

/**
 * Folders that are empty in the guest and its own. What the guest needs of the host below one of
 * them (`keep`, such as a clone in /tmp) is mounted again.
 */
export const emptyFolders = ['/tmp', '/var/tmp', '/run', '/dev/shm'] as const;

/**
 * Arguments arrive on the kernel's command line as mr.NAME=VALUE, escaped for printf (see
 * kernelArguments). The modules load in the background, through a path to /run that stays valid
 * when the root moves. Process 1 becomes a shell that waits for the agent: it also reaps orphans,
 * which Node would not do.
 */
export const initScript = `#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /lower /rw /keep /new /new-run
/bin/busybox --install -s /bin
export PATH=/bin
die() { echo "millrace-init: $*"; echo o > /proc/sysrq-trigger; sleep 60; }
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t devtmpfs dev /dev || die "cannot mount /proc, /sys or /dev"
load() { while read -r m; do insmod /${imagePaths.modules}/$m.ko || echo "module $m does not load"; done; }
load < /${imagePaths.rootModules}
unescape() { printf '%b' "$1"; }
p9=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o ro,$p9,cache=loose ${rootTag} /lower || die "cannot mount the host's root"
mount -t tmpfs rw /rw && mkdir /rw/upper /rw/work
mount -t overlay -o lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work root /new || die "cannot mount the root"
kept=0
for a in $(cat /proc/cmdline); do
  v=\${a#*=}
  case $a in
    mr.name=*) unescape "$v" > /proc/sys/kernel/hostname;;
    mr.node=*) node=$(unescape "$v");;
    mr.share=*) share=$(unescape "$v");;
    mr.modules=*) extra=$(unescape "$v");;
    mr.keep=*)
      kept=$((kept + 1)); mkdir /keep/$kept
      mount --bind "/new$(unescape "$v")" /keep/$kept; eval "keep$kept=\\$v";;
  esac
done
for d in proc sys dev; do mount --move /$d /new/$d; done
mkdir -p /new/dev/shm /new/dev/pts
for d in ${emptyFolders.join(' ')}; do
  mkdir -p /new$d; mount -t tmpfs -o mode=1777 tmpfs /new$d
done
chmod 755 /new/run
mkdir -p /new/run/lock /new/run/millrace-guest /new/run/user/0
mount -t devpts -o ptmxmode=666 pts /new/dev/pts
ln -s /proc/self/fd /new/dev/fd
for n in 0:stdin 1:stdout 2:stderr; do ln -s /proc/self/fd/\${n%:*} /new/dev/\${n#*:}; done
mount -t cgroup2 cgroup /new/sys/fs/cgroup
mount -t bpf bpf /new/sys/fs/bpf
i=0
while [ $i -lt $kept ]; do
  i=$((i + 1)); eval "d=\\$keep$i"; d=$(unescape "$d"); mkdir -p "/new$d"; mount --move /keep/$i "/new$d"
done
if [ -n "$share" ]; then
  mkdir -p "/new$share"
  mount -t 9p -o $p9,cache=mmap ${shareTag} "/new$share" || die "cannot mount the shared folder"
fi
cp -r /${imagePaths.agent} /new/run/millrace-guest/agent
fifo=/run/millrace-guest/modules-loaded
mkfifo /new$fifo
mount --bind /new/run /new-run
echo 0 > /new/proc/sys/net/ipv6/conf/all/accept_dad
echo 0 > /new/proc/sys/net/ipv6/conf/default/accept_dad
echo 1 > /new/proc/sys/net/core/devconf_inherit_init_net
(
  load < /${imagePaths.networkModules}
  for m in $extra; do load < /${imagePaths.extraModules}/$m; done
  ip link set lo up
) > /new-\${fifo#/} 2>&1 &
ulimit -l unlimited
cd /new
mount --move . /
exec chroot . /bin/sh -c '
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@" < /dev/null &
  wait $!
  echo "millrace-init: the agent ended with status $?"
  echo o > /proc/sysrq-trigger
  sleep 60
' init "$node" --liftoff-only /run/millrace-guest/agent/agent-main.mjs ${agentPort} $fifo
`;

interface InitArguments {
  /** The guest's host name. */
  readonly name: string;
  /** The Node that runs the agent, as a path on the host. */
  readonly node: string;
  readonly share?: string | undefined;
  /** Extra modules. */
  readonly modules: readonly string[];
  /** Paths below `emptyFolders` that stay visible. */
  readonly keep: readonly string[];
}

/** Words of the kernel's command line, which splits at spaces and has no quotes. */
export function kernelArguments({ name, node, share, modules, keep }: InitArguments): readonly string[] {
  const words = [
    ['name', name],
    ['node', node],
    ...(share === undefined ? [] : [['share', share]]),
    ...(modules.length === 0 ? [] : [['modules', modules.join(' ')]]),
    ...keep.map((path) => ['keep', path]),
  ];
  return words.map(([key, value = '']) => `mr.${key}=${escapeForPrintf(value)}`);
}

/** Escapes all but harmless bytes as \\0 and three octal digits, which printf's %b decodes. */
function escapeForPrintf(text: string): string {
  return [...Buffer.from(text)]
    .map((byte) => {
      const character = String.fromCharCode(byte);
      return /[\w./+,:@-]/.test(character) ? character : `\\0${byte.toString(8).padStart(3, '0')}`;
    })
    .join('');
}
