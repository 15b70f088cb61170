// Starting programs with the library of Direct.

export { directEnvironment, directLibrary } from './library.ts';
export { whyNotLoaded } from './program-kind.ts';
