// Opens the devices that a guest is granted, and records its verbs calls where the backend is told
// to.

import { openProvided, openSoftProvided } from '../../../providers/index.ts';
import { RecordingFile, recordProvider } from '../../../providers/recording/index.ts';
import { Device, type Provider } from '../../../verbs/index.ts';
import type { DeviceGrant } from '../policy.ts';

export class GrantedDevices implements Disposable {
  readonly #provider: Provider;
  readonly #file: RecordingFile | undefined;

  /** `record` is the file for the guest's calls. */
  constructor(grants: readonly DeviceGrant[], record?: string) {
    const provider: Provider = {
      name: 'backend',
      listDevices: () => [],
      openDevice: (name) => {
        const soft = grants.find((grant) => grant.name === name)?.soft;
        return soft === undefined ? openProvided(name) : openSoftProvided(soft);
      },
    };
    this.#file = record === undefined ? undefined : new RecordingFile(record);
    this.#provider = this.#file === undefined ? provider : recordProvider(provider, this.#file.sink);
  }

  open({ name }: DeviceGrant): Device {
    return new Device(this.#provider.openDevice(name));
  }

  [Symbol.dispose](): void {
    this.#file?.close();
  }
}
