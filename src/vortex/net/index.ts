// Streams between hosts.

export {
  type ListenAddress,
  type NetworkOptions,
  openReceiver,
  openSender,
  type Receiver,
  type ReceiverOptions,
  type Sender,
  type SenderOptions,
  type StreamTls,
} from './open.ts';
export { type Strategy, strategies } from './protocol.ts';
export { openStreamDevice, wireOfDevice } from './verbs-device.ts';
