// Streams between hosts.

export { openStreamDevice, wireOfDevice } from './movers/rdma-device.ts';
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
