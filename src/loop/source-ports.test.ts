import assert from 'node:assert/strict';
import { constants } from 'node:os';
import { describe, test } from 'node:test';
import { SystemError } from '../errors.ts';
import { type Address, ip, Poller, pollEvents, Socket } from '../native/index.ts';
import { SourcePorts } from './source-ports.ts';

/** A loopback address that no other test uses: its ports are its own. */
const host = '127.99.0.7';

function portOf(address: Address): number {
  return address.family === 'unix' ? 0 : address.port;
}

/** One short connection, closed by the client, whose port rests in TIME_WAIT after it. */
function callOnce(ports: SourcePorts, listener: Socket): Address {
  const socket = Socket.stream('ipv4');
  const local = ports.bind(socket, host);
  socket.connect(listener.localAddress);
  using poller = Poller.create(1);
  poller.add(listener.fd, pollEvents.in, 0);
  assert.equal(poller.wait(5e9), 1);
  const server = listener.accept();
  ports.release(local);
  socket.close();
  server?.close();
  return local;
}

/** A socket on a host where the kernel has no port to give. */
class CrowdedSocket extends Socket {
  override bind(address: Address): void {
    if (portOf(address) === 0) throw new SystemError(-constants.errno.EADDRINUSE, 'bind');
    super.bind(address);
  }
}

function crowded(): Socket {
  return CrowdedSocket.adopt(Socket.stream('ipv4').release());
}

describe('source ports', () => {
  test('two sockets that are open never share a port', () => {
    using stack = new DisposableStack();
    const ports = new SourcePorts();
    const used = new Set<number>();
    for (let count = 0; count < 500; count++) used.add(portOf(ports.bind(stack.use(Socket.stream('ipv4')), host)));
    assert.equal(used.size, 500);
  });

  test('an address that is not of this host is refused', () => {
    using socket = Socket.stream('ipv4');
    assert.throws(() => new SourcePorts().bind(socket, '192.0.2.1'), { code: 'EADDRNOTAVAIL' });
  });

  test('when the kernel has no port left, those of closed connections are used again, and those of open ones are not', () => {
    using stack = new DisposableStack();
    const listener = stack.use(Socket.stream('ipv4'));
    listener.bind(ip('127.0.0.1', 0));
    listener.listen(1);
    const ports = new SourcePorts();
    const ended = callOnce(ports, listener);
    const other = callOnce(ports, listener);
    const again = [0, 1].map(() => portOf(ports.bind(stack.use(crowded()), host)));
    assert.deepEqual(again, [portOf(ended), portOf(other)]);
    using third = crowded();
    assert.throws(() => ports.bind(third, host), { code: 'EADDRINUSE' });
  });
});
