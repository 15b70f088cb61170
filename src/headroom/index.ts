// What is left of the process's descriptors, and when to take no more work.

export { Descriptors } from './descriptors.ts';
export { marksOf } from './marks.ts';
export { maxDescriptors, maxMappings } from './process-limits.ts';
