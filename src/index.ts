// What `import 'millrace'` gives: the errors; each room is a subpath of its own (`millrace/native`,
// `millrace/lab`, …).

export { type ErrorCode, errorCodes, MillraceError, SystemError, UnsupportedError, UsageError } from './errors.ts';
export { packageVersion } from './system/index.ts';
