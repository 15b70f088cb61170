// A posted request as the header of a frame.

import { sendFlags, sendOpcodes, sendRow } from '../../verbs/index.ts';
import { beginFrame, frameFlags, frameTypes, headerRow } from './frame.ts';

/** Frame types by opcode. */
const frameTypeOf = [
  frameTypes.send,
  frameTypes.send,
  frameTypes.write,
  frameTypes.write,
  frameTypes.read,
  frameTypes.fetchAdd,
  frameTypes.compareSwap,
];

/**
 * `words` and `row` are the request's, `bytes` the length of its message. Reads and atomics are
 * always answered.
 */
export function fillRequest(
  header: Uint32Array,
  words: Uint32Array,
  row: number,
  sequence: number,
  bytes: number,
  wantsAck: boolean,
): void {
  const opcode = words[row + sendRow.opcode];
  const hasImm = opcode === sendOpcodes.sendWithImm || opcode === sendOpcodes.writeWithImm;
  const isSolicited =
    (words[row + sendRow.flags] & sendFlags.solicited) !== 0 && (hasImm || opcode === sendOpcodes.send);
  const isAcked = wantsAck && opcode < sendOpcodes.read;
  const bits =
    (hasImm ? frameFlags.hasImm : 0) | (isSolicited ? frameFlags.solicited : 0) | (isAcked ? frameFlags.wantsAck : 0);
  // The data of a read or an atomic comes with the answer.
  beginFrame(header, frameTypeOf[opcode], bits, sequence, opcode >= sendOpcodes.read ? 0 : bytes);
  if (hasImm) header[headerRow.imm] = words[row + sendRow.imm];
  if (opcode < sendOpcodes.write) return;
  header[headerRow.rkey] = words[row + sendRow.rkey];
  header[headerRow.remoteAddress] = words[row + sendRow.remoteAddress];
  header[headerRow.remoteAddress + 1] = words[row + sendRow.remoteAddress + 1];
  if (opcode === sendOpcodes.read) header[headerRow.operandA] = bytes;
  if (opcode < sendOpcodes.fetchAdd) return;
  for (let word = 0; word < 2; word++) {
    header[headerRow.operandA + word] = words[row + sendRow.compareAdd + word];
    header[headerRow.operandB + word] = words[row + sendRow.swap + word];
  }
}
