// QP endpoints as plain data and in JSON, without the object model of verbs.

export {
  decodeQpEndpoint,
  encodeQpEndpoint,
  type QpEndpoint,
  qpEndpoint,
  qpProtocol,
  type RemoteRegion,
  remoteRegion,
} from './qp-endpoint.ts';
