// A slot that a lane shares with a program of its host and mirrors to the peer: the lane is party
// 1.

import { type LostWord, lostWords, type MappedArena } from '../direct/arena/index.ts';
import { FlowFromProgram } from './flow-from-program.ts';
import { FlowToProgram } from './flow-to-program.ts';
import { FlowWords } from './flow-words.ts';

export class MirroredSlot {
  readonly fromProgram: FlowFromProgram;
  readonly toProgram: FlowToProgram;

  constructor(arena: MappedArena, slot: number) {
    this.fromProgram = new FlowFromProgram(new FlowWords(arena, slot, 0));
    this.toProgram = new FlowToProgram(new FlowWords(arena, slot, 1));
  }

  /** The program has written something that cannot be. */
  get isBroken(): boolean {
    return this.fromProgram.isBroken || this.toProgram.isBroken;
  }

  /**
   * An idle ring that the lane writes gives its pages back; the program does the same with its own.
   */
  trim(): void {
    this.toProgram.trim();
  }

  /** Both programs go on by TCP. Whoever does this does not touch the slot any more. */
  lose(why: LostWord = lostWords.lost): void {
    this.toProgram.lose(why);
    this.fromProgram.lose();
  }
}
