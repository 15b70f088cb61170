// Whether packets get to where a peer listens: knocks and gates.

export { Admission } from './admission.ts';
