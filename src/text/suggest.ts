// Guesses which of the known words a mistyped one was meant to be.

const maxListed = 8;

/** Ends an error message: ` (did you mean alpha?)`, or what there is to choose from, or nothing. */
export function didYouMean(word: string, known: readonly string[]): string {
  if (known.length === 0) return '';
  const near = known
    .map((candidate) => ({ candidate, distance: editDistance(word, candidate) }))
    .filter(({ candidate, distance }) => distance <= 2 && distance < candidate.length)
    .toSorted((left, right) => left.distance - right.distance)[0];
  if (near !== undefined) return ` (did you mean ${near.candidate}?)`;
  const listed = known.slice(0, maxListed).join(', ');
  return ` (there is ${listed}${known.length > maxListed ? ', …' : ''})`;
}

/** Levenshtein's: insertions, deletions and replacements, each costing one. */
export function editDistance(left: string, right: string): number {
  let previous = Array.from({ length: right.length + 1 }, (_, column) => column);
  for (let row = 1; row <= left.length; row++) {
    const current = [row];
    for (let column = 1; column <= right.length; column++) {
      const replaced = previous[column - 1] + (left[row - 1] === right[column - 1] ? 0 : 1);
      current.push(Math.min(previous[column] + 1, current[column - 1] + 1, replaced));
    }
    previous = current;
  }
  return previous[right.length];
}
