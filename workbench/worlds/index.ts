// Lab hosts with daemons and real programs in them, for tests, benchmarks, soak and demo.

export { LabDaemon } from './daemon-process.ts';
export { type RedisFigures, type RedisServer, runRedisBenchmark, startRedis } from './redis.ts';
