// Access flags of memory regions and queue pairs. The numbers are those of libibverbs.

export const access = {
  localWrite: 1,
  remoteWrite: 2,
  remoteRead: 4,
  remoteAtomic: 8,
} as const;

const all = access.localWrite | access.remoteWrite | access.remoteRead | access.remoteAtomic;

/** Why the flags are invalid, or undefined. */
export function accessProblem(flags: number): string | undefined {
  if (!Number.isInteger(flags) || (flags & ~all) !== 0) return `access flags ${flags} are not known`;
  const writes = access.remoteWrite | access.remoteAtomic;
  if ((flags & writes) !== 0 && (flags & access.localWrite) === 0) {
    return 'remote write and remote atomic access need local write access, too';
  }
  return undefined;
}
