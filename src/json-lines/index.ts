// Conversations in JSON lines: messages as tables, framing, heartbeat, hang-up, waiting room.

export { allClosed, hangUp } from './hang-up.ts';
export { Heartbeat, type HeartbeatSpec } from './heartbeat.ts';
export { readLine, writeLine } from './line.ts';
export { LineBudget } from './line-budget.ts';
export { LineSplitter, MAX_LINE_BYTES } from './line-splitter.ts';
export { isOfKind, readMessage, unexpected, writeMessage } from './message.ts';
export { type MessageOf, Protocol } from './protocol.ts';
export {
  boolean,
  converted,
  type Fields,
  hex,
  integer,
  jsonObject,
  list,
  map,
  object,
  oneOf,
  only,
  optional,
  printableText,
  text,
  type ValueOf,
} from './shape.ts';
export { type Guest, WaitingRoom } from './waiting-room.ts';
