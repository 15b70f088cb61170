// Rows load.*: what a daemon costs, and what many connections cost the one that is busy.

import { prepareIdleBeside } from './load-idle.ts';
import { prepareResident } from './load-resident.ts';
import type { Row } from './row.ts';

export const loadRows: readonly Row[] = [
  {
    id: 'load.rss',
    what: 'MiB resident, a daemon without peers, of the command as JavaScript in a few files',
    unit: 'MiB',
    better: 'lower',
    threshold: 110,
    goal: 70,
    rounds: 3,
    prepare: prepareResident,
  },
  {
    id: 'load.idle10k',
    what: 'one carried stream beside 10,000 idle connections, next to the same stream alone, wire shm',
    unit: 'MiB/s',
    better: 'higher',
    threshold: { alone: 0.9 },
    goal: { alone: 0.98 },
    prepare: prepareIdleBeside,
  },
];
