// Two nodes with buffers that both know by name: one fetches the buffer of the other. Run it with
// Node 24:
//
//   node examples/transfer.ts
//
// The child dials the parent over TCP only to exchange endpoints; the bytes go over the RDMA
// device. For a real device, or in a guest, set DEVICE to its name.

import { fork } from 'node:child_process';
import { TransferLibrary } from '../src/transfer/index.ts'; // outside: 'millrace/transfer'

const device = process.env.DEVICE ?? 'soft-shm';
const port = process.argv[2];

if (port === undefined) {
  await using library = await TransferLibrary.open({ nodeId: 1, device, listen: { host: '127.0.0.1' } });
  const buffer = library.allocate({ sizeBytes: 1 << 20, name: 'greeting' });
  buffer.bytes.set(new TextEncoder().encode('hello from another node'));
  const child = fork(import.meta.filename, [String(library.address?.port)]);
  await new Promise((resolve) => child.on('exit', resolve));
} else {
  await using library = await TransferLibrary.open({ nodeId: 2, device });
  const node = await library.connect({ host: '127.0.0.1', port: Number(port) });
  const to = library.allocate({ sizeBytes: 1 << 20 });
  const id = library.start({ from: await node.bufferNamed('greeting'), to, sizeBytes: 1 << 20 });
  await library.ended(id); // or: while (library.poll(id) !== 'done') …
  console.log(`transfer ${id} brought: "${new TextDecoder().decode(to.bytes.subarray(0, 23))}"`);
}
