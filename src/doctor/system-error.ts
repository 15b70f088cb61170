// Tells system errors apart by their errno name, Node's own and ours alike.

export function isSystemError(error: unknown, ...codes: readonly string[]): error is Error & { readonly code: string } {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && codes.includes(error.code);
}
