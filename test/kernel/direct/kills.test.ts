// Tests what arrives when a program ends with bytes on their way. The connections are direct,
// between two hosts. Daemons and programs that are killed under load are in the soak.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { MirroredWorld } from '../../../workbench/worlds/mirrored-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { compile } from '../steering/compile.ts';

before(sweepDeadTests);

const PORT = 7400;

/** Root may have as much room in TCP as it wants; others leave what does not fit to their lane. */
const users = { root: [], nobody: ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'] } as const;
const SIZES = { few: 1000, many: 4_000_000 } as const;

describe('a program ends with bytes on their way', { concurrency: false }, () => {
  const program = compile([join(import.meta.dirname, 'killed/main.c')]);
  let world: MirroredWorld;
  let port = PORT;
  before(async () => {
    world = await MirroredWorld.start();
  });
  after(() => world?.close());

  /** Bytes of the connection to that port have come through both rings. */
  async function isUsed(name: 'a' | 'b', at: string): Promise<boolean> {
    const all = await world.daemon(name).connections();
    return all.some(({ mode, local, remote, bytesIn, bytesOut }) => {
      return (
        mode === 'direct' &&
        [local, remote].some((end) => end.endsWith(`:${at}`)) &&
        Boolean(bytesIn) &&
        Boolean(bytesOut)
      );
    });
  }

  for (const how of ['kill', 'close', 'shut', 'exit']) {
    for (const [user, as] of Object.entries(users)) {
      for (const [size, bytes] of Object.entries(SIZES)) {
        test(`by ${how}, as ${user}: all that it could write arrive, if ${size}, and then the end`, async () => {
          const at = String(++port);
          await using receiver = RunningProgram.start(world.b, program, ['receive', at], { isWritable: true });
          await world.listening(port);
          const [command, ...args] = [...as, program, how, world.b.ipv4, at, String(bytes)];
          await using sender = RunningProgram.start(world.a, command, args, { isWritable: true });
          await eventually(
            'both of its rings are used',
            async () => (await isUsed('a', at)) && (await isUsed('b', at)),
          );
          sender.write('go');
          const sent = (await sender.line(/^sent \d+$/)).slice('sent '.length);
          if (how !== 'shut') await sender.exit();
          receiver.write('go');
          assert.equal(await receiver.line(/^received /), `received ${sent} right end`);
          await sender.exit();
          assert.equal(sender.exitCode, how === 'kill' ? null : 0, sender.stderr);
        });
      }
    }
  }
});
