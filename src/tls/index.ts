// TLS between programs of millrace, and the certificates for it.

export { type LabCaOptions, type LabCertificates, makeLabCertificates } from './lab-ca.ts';
export {
  acceptTls,
  type ControlSecurity,
  checkSecurity,
  type Dialed,
  type DialFailure,
  dial,
  dialFailure,
  nameMismatch,
  readable,
  TLS_FIRST_BYTE,
} from './mutual-tls.ts';
export { readTlsMaterial, type TlsMaterial } from './tls-material.ts';
