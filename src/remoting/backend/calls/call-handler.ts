// The type of what carries out one kind of call: it reads arguments, writes results, and what it
// throws goes to the guest.

import type { WordReader, WordWriter } from '../../protocol/index.ts';
import type { GuestState } from '../guest/guest-state.ts';

export type CallHandler = (guest: GuestState, args: WordReader, results: WordWriter) => void;
