// `millrace guest`: the guests that a backend serves.

import type { AddCommand } from './command.ts';
import { addGuestRun } from './guest-run.ts';
import { addGuestShow } from './guest-show.ts';

export const addGuest: AddCommand = (program, context) => {
  const guest = program
    .command('guest')
    .description('Show the guests of a backend, or run a command in a guest.')
    .enablePositionalOptions();
  addGuestShow(guest, context);
  addGuestRun(guest, context);
};
