// TLS between programs of millrace, and the certificates for it.

export { acceptTls, TLS_FIRST_BYTE } from './accept.ts';
export { type Dialed, type DialFailure, dial, dialFailure } from './dial.ts';
export { type LabCertificates, makeLabCertificates } from './lab-ca.ts';
export { type ControlSecurity, checkSecurity, nameMismatch, readSecurity, revocationOf } from './security.ts';
export { readTlsMaterial } from './tls-material.ts';
