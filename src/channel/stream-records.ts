// The control records of a stream that carries a connection between two legs.

import { OPEN_PAYLOAD_BYTES, writeOpen } from './open-record.ts';
import type { OutgoingRing } from './outgoing-ring.ts';
import { recordKinds } from './record-layout.ts';
import type { Stream } from './stream.ts';
import { recordFlags } from './stream-ends.ts';

export function streamPayloadBytes(flag: number): number {
  return flag === recordFlags.open ? OPEN_PAYLOAD_BYTES : 0;
}

/** Writes the record of one of `recordFlags`. */
export function writeStreamRecord(ring: OutgoingRing, stream: Stream, flag: number): void {
  switch (flag) {
    case recordFlags.open:
      writeOpen(ring.memory.buffer, ring.payloadOffset, stream.info);
      ring.commit(recordKinds.open, stream.id, OPEN_PAYLOAD_BYTES, stream.tellCredit());
      break;
    case recordFlags.opened:
      ring.commit(recordKinds.opened, stream.id, 0, stream.tellCredit());
      break;
    case recordFlags.refused:
      ring.commit(recordKinds.refused, stream.id, 0, -1, stream.refusal);
      break;
    case recordFlags.credit:
      ring.commit(recordKinds.credit, stream.id, 0, stream.tellCredit());
      break;
    case recordFlags.returned:
      ring.commit(recordKinds.returned, stream.id, 0, -1, stream.tellReturned());
      break;
    case recordFlags.shut:
      ring.commit(recordKinds.shut, stream.id, 0);
      break;
    default:
      ring.commit(recordKinds.reset, stream.id, 0);
  }
}
