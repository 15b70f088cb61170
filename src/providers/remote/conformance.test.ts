// The conformance suite through remoting: two guests of one backend, which drives a soft device.
// The kernel tier has it on both wires, from a container.
// Runs in a process of its own: it awaits its backend before it registers tests.

import { after } from 'node:test';
import { conformance } from '../../../test/conformance/index.ts';
import { RemoteEnds } from '../../../test/conformance/remote-ends.ts';
import { BackendProcess } from '../../remoting/backend/fixtures/backend-process.ts';
import { UnixGuest } from '../../remoting/transports/unix/guest-transport.ts';

const backend = await BackendProcess.start();
const ends = new RemoteEnds(() => UnixGuest.connect(backend.socketPath));

after(async () => {
  ends.close();
  await backend[Symbol.asyncDispose]();
});

conformance(ends.target('remote shm', 'soft-shm'));
