// What the kernel lets this process have.

import { readFileSync } from 'node:fs';

/** Open files: the soft limit, which Node has raised to the hard one. */
export function maxDescriptors(): number {
  const soft = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
  // It cannot be unlimited: the kernel has a limit for it, fs.nr_open.
  return Number(soft ?? 1024);
}

/** Mappings of memory. */
export function maxMappings(): number {
  return Number(readFileSync('/proc/sys/vm/max_map_count', 'utf8'));
}
