// How the backend carries out one kind of call: arguments in, results out, and what it throws goes to the guest.

import type { WordReader, WordWriter } from '../protocol/index.ts';
import type { GuestState } from './guest-state.ts';

export type CallHandler = (guest: GuestState, args: WordReader, results: WordWriter) => void;
