// What a lane is told of the arenas that it shares with programs, and of the slots that it mirrors.

export type MirrorOrder =
  /**
   * Memory that the lane shares with a program, as party 1. The descriptors are the lane's to
   * close: the memory, the doorbell that the lane hears, and the program's.
   */
  | {
      readonly kind: 'arena';
      readonly arena: number;
      readonly ringBytes: number;
      readonly memoryFd: number;
      readonly doorbellFd: number;
      readonly programDoorbellFd: number;
    }
  /**
   * The slot is mirrored over that link; the key names the connection at both ends. `isOpener`:
   * this lane opens the stream, the other one expects it.
   */
  | {
      readonly kind: 'mirror';
      readonly arena: number;
      readonly slot: number;
      readonly peer: string;
      readonly link: number;
      readonly key: string;
      readonly isOpener: boolean;
    }
  /** The program has left the slot; or, `isEnded`, it has ended without. */
  | { readonly kind: 'unmirror'; readonly arena: number; readonly slot: number; readonly isEnded: boolean }
  /**
   * Rings there that the lane writes and that are idle since the last time give their pages back.
   */
  | { readonly kind: 'trim'; readonly arena: number }
  /** It is unmapped, and its descriptors are closed. */
  | { readonly kind: 'arenaGone'; readonly arena: number }
  /** The daemon stops: all programs go on by TCP, but for what is sent of those that have ended. */
  | { readonly kind: 'unmirrorAll' };
