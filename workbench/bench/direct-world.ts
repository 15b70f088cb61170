// A lab host with a daemon, in which programs are started with the library or without; and the
// proof that their connections were direct or plain.

import { directEnvironment, directLibrary } from '../../src/direct/launch/index.ts';
import { MillraceError } from '../../src/errors.ts';
import { type Host, Lab } from '../../src/lab/index.ts';
import { directSocketPath } from '../../src/system/index.ts';
import { DaemonProcess, daemonSettings, temporaryFolder } from '../worlds/index.ts';

export type DirectPath = 'direct' | 'plain';

export class DirectWorld implements AsyncDisposable {
  readonly host: Host;
  /** The command that runs a program so that its connections take that path. */
  readonly as: Readonly<Record<DirectPath, readonly string[]>>;
  readonly #daemon: DaemonProcess;
  readonly #undo: AsyncDisposableStack;

  static async create(signal: AbortSignal): Promise<DirectWorld> {
    const library = directLibrary();
    await using undo = new AsyncDisposableStack();
    const folder = undo.use(temporaryFolder('direct'));
    const lab = undo.use(await Lab.create({ signal }));
    const [host] = lab.hosts;
    const settings = daemonSettings({ host, peers: [], folder: folder.path, devices: ['soft-shm'] });
    const daemon = undo.use(await DaemonProcess.start(host, folder.path, settings));
    // What `millrace run` sets; the library is loaded into that program alone.
    const changes = directEnvironment(process.env, library, directSocketPath(daemon.instance, folder.path));
    const as = { plain: [], direct: ['env', ...Object.entries(changes).map((each) => each.join('='))] };
    return new DirectWorld(host, as, daemon, undo.move());
  }

  private constructor(host: Host, as: DirectWorld['as'], daemon: DaemonProcess, undo: AsyncDisposableStack) {
    this.host = host;
    this.as = as;
    this.#daemon = daemon;
    this.#undo = undo;
  }

  /**
   * Fails unless the daemon promoted so many connections meanwhile, and declined none; on the plain
   * path, unless it was asked for none.
   */
  async measured(path: DirectPath, connections: number, measure: () => Promise<number>): Promise<number> {
    const before = (await this.#daemon.status()).direct;
    const figure = await measure();
    const after = (await this.#daemon.status()).direct;
    const [promoted, declined] = [after.promoted - before.promoted, after.declined - before.declined];
    const isRight = path === 'plain' ? promoted === 0 : promoted >= connections;
    if (isRight && declined === 0) return figure;
    throw new MillraceError(
      'MILLRACE_ERR_FAILED',
      `measure direct connections: on the path '${path}' ${promoted} were promoted and ${declined} declined`,
    );
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#undo.disposeAsync();
  }
}
