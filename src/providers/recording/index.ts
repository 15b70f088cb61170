// A provider that records the verbs calls of a program, and the replay of such a recording.

export { recordProvider } from './record.ts';
export { RecordingFile } from './recording-file.ts';
export { type ReplayReport, replay } from './replay.ts';
