// The remote provider: devices that a backend owns, on this host or on the host of this virtual
// machine.

import { openGuestTransport } from '../../remoting/transports/index.ts';
import { Device, type DeviceInfo, type Provider, type ProviderDevice } from '../../verbs/index.ts';
import { RemoteConnection, type RemoteConnectionOptions } from './connection.ts';

export { RemoteConnection } from './connection.ts';

export interface RemoteOptions extends RemoteConnectionOptions {
  /**
   * The backend's socket, or `qemu` in a virtual machine. Default: MILLRACE_BACKEND; without one
   * there are no remote devices.
   */
  readonly socketPath?: string;
}

/** Opens a connection for every device, which is closed with it. */
export function remoteProvider(options: RemoteOptions = {}): Provider {
  let idle: RemoteConnection | undefined;
  const socketPath = (): string | undefined => options.socketPath ?? process.env.MILLRACE_BACKEND;
  const connect = (path: string): RemoteConnection => {
    // The connection that listed the devices serves the first one that is opened, if its backend is
    // still alive.
    idle?.checkAlive();
    const connection =
      idle?.backend.isGone === false
        ? idle
        : RemoteConnection.open(openGuestTransport(path), { ...options, endsWithDevices: true });
    idle = undefined;
    return connection;
  };
  return {
    name: 'remote',
    listDevices: (): readonly DeviceInfo[] => {
      const path = socketPath();
      if (path === undefined || path === '') return [];
      const connection = connect(path);
      idle = connection;
      return connection.listDevices();
    },
    openDevice: (name: string): ProviderDevice => {
      const path = socketPath() ?? '';
      using undo = new DisposableStack();
      const device = undo.use(connect(path)).openDevice(name);
      undo.move();
      return device;
    },
  };
}

/** A device of a backend at a socket; `openDevice` finds those of MILLRACE_BACKEND by name. */
export function openRemoteDevice(name: string, options: RemoteOptions = {}): Device {
  return new Device(remoteProvider(options).openDevice(name));
}
