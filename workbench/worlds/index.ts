// Lab hosts with daemons and real programs in them, for tests, benchmarks, soak and demo.

export { DaemonProcess, daemonSettings } from './daemon-process.ts';
export { Etcd } from './etcd.ts';
export { eventually } from './eventually.ts';
export { instanceOf } from './pinned-instance.ts';
export { Random } from './random.ts';
export { type RedisFigures, type RedisServer, runRedisBenchmark, startRedis } from './redis.ts';
export { RunningProgram } from './running-program.ts';
export { temporaryFolder } from './temporary-folder.ts';
