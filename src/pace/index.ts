// Work that many events ask for: done at once the first time, and gathered while they go on.

export { PacedTask } from './paced-task.ts';
