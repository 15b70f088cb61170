// A reporter for tests inside a guest: one line of JSON for each test, for the host to tell again.

import type { TestEvent } from 'node:test/reporters';

/** What the host is told of one test. */
export interface GuestTest {
  readonly name: string;
  readonly isPassed: boolean;
  readonly skip?: string;
  readonly error?: string;
  readonly durationMs: number;
}

// biome-ignore lint/style/noDefaultExport: Node finds a reporter by it.
export default async function* reporter(source: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  for await (const event of source) {
    if (event.type === 'test:stderr' || event.type === 'test:stdout') continue;
    if (event.type !== 'test:pass' && event.type !== 'test:fail') continue;
    const { name, details, skip } = event.data;
    if (details.type === 'suite') continue;
    const told: GuestTest = {
      name,
      isPassed: event.type === 'test:pass',
      durationMs: details.duration_ms,
      ...(skip !== undefined && skip !== false && { skip: String(skip) }),
      ...(event.type === 'test:fail' && { error: wordsOf(event.data.details.error) }),
    };
    yield `${JSON.stringify(told)}\n`;
  }
}

function wordsOf(error: Error): string {
  const cause = error.cause instanceof Error ? error.cause : error;
  return cause.stack ?? cause.message;
}
