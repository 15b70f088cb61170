// How much of the ICRC can be trusted, by peer. It covers the IPv4 identification, which a UDP
// socket does not show, so native/icrc.c finds the one with which a packet is whole: that leaves 16
// of the 32 bits to tell a damaged packet.
//
// Soft devices always send identifications below 64 (see `Transmitter`). A peer that has done so
// for a while is held to it, and then 26 bits are checked; one that does not, such as the kernel's
// rxe, may use any.

const SMALL = 64;
const TIDY_AFTER = 8;
/** So many large ones in a row are no damaged packets: the peer uses any identification. */
const UNTIDY_AFTER = 3;

export class Identifications {
  #small = 0;
  #large = 0;
  #isTidy = false;

  /** Whether a packet with this identification is accepted. */
  accepts(identification: number): boolean {
    if (identification < SMALL) {
      this.#large = 0;
      if (!this.#isTidy && ++this.#small >= TIDY_AFTER) this.#isTidy = true;
      return true;
    }
    this.#small = 0;
    if (this.#isTidy && ++this.#large >= UNTIDY_AFTER) this.#isTidy = false;
    return !this.#isTidy;
  }
}
