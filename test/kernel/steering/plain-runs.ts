// What programs did over plain TCP, for comparison. Several files of tests compare with the same:
// in one run of the test runner, what one of them has found the others read.

import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { deserialize, serialize } from 'node:v8';
import { World } from '../../../workbench/worlds/world.ts';

/** Every content by its hash, or compared at once. Its name tells it from others. */
type Run = (world: World) => Promise<unknown>;

export class PlainRuns implements AsyncDisposable {
  readonly #found = new Map<string, Promise<unknown>>();
  #world: Promise<World> | undefined;

  resultOf(run: Run): Promise<unknown> {
    const found = this.#found.get(run.name) ?? this.#find(run);
    this.#found.set(run.name, found);
    return found;
  }

  async #find(run: Run): Promise<unknown> {
    const folder = process.env.MILLRACE_TEST_RUN;
    const file = folder === undefined ? undefined : join(folder, `plain-${run.name}`);
    if (file !== undefined && existsSync(file)) return deserialize(readFileSync(file));
    this.#world ??= World.create();
    const result = await run(await this.#world);
    if (file !== undefined) {
      // Others may look for it, or write it, at this moment.
      writeFileSync(`${file}.${process.pid}`, serialize(result));
      renameSync(`${file}.${process.pid}`, file);
    }
    return result;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await (await this.#world)?.close();
  }
}
