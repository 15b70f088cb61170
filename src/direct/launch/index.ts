// Starting programs with the library of Direct.

export { findDirectSocket } from './daemon-socket.ts';
export { directEnvironment, directLibrary } from './library.ts';
export { whyNotLoaded } from './program-kind.ts';
