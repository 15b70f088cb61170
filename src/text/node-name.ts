// The names of nodes, as they stand in configs, certificates, etcd and hellos.

const MAX_NAME_LENGTH = 63;
const namePattern = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;

export function isNodeName(name: string): boolean {
  return name.length <= MAX_NAME_LENGTH && namePattern.test(name);
}
