// What this process was started with. The executable imports this before all else: Node makes
// streams of standard input, output and error while it loads some of its own modules.

export { inheritedFds, startedWith, stdioFlags, wordsAsGiven } from './process-start.ts';
