// The state file of a lab: written before anything is created, removed after everything is gone.

import { randomBytes } from 'node:crypto';
import { linkSync, lstatSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  currentOwner,
  livenessOf,
  makeRunFolder,
  type Owner,
  type OwnerView,
  ownerToken,
  parseOwner,
  parseOwnerToken,
} from '../system/index.ts';
import { type LabSpec, labSpec } from './spec.ts';

export interface LabRecord extends LabSpec {
  readonly id: string;
  /** The process that created the lab. Null: the lab is persistent. */
  readonly owner: Owner | null;
  /** ISO 8601. */
  readonly createdAt: string;
}

/**
 * A file among the records that is no record. It is reported and left alone, because its owner is
 * unknown.
 */
export interface RecordProblem {
  readonly file: string;
  readonly reason: string;
}

interface RecordList {
  readonly records: readonly LabRecord[];
  readonly problems: readonly RecordProblem[];
}

export const defaultRunDir = '/run/millrace';

const formatVersion = 1;
const idPattern = /^[0-9a-f]{8}$/;
const maxRecordBytes = 64 * 1024;
const temporarySuffix = '.tmp';

export function newLabId(): string {
  return randomBytes(4).toString('hex');
}

export function recordDir(runDir: string): string {
  return join(runDir, 'lab');
}

function recordFile(runDir: string, id: string): string {
  return join(recordDir(runDir), `${id}.json`);
}

/** Claims the id. False when it is taken: link(), unlike rename(), refuses to replace. */
export function claimRecord(runDir: string, record: LabRecord): boolean {
  makeRunFolder(recordDir(runDir));
  return withTemporary(runDir, record, (temporary) => {
    try {
      linkSync(temporary, recordFile(runDir, record.id));
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
      throw error;
    }
  });
}

/** Replaces the record in one step. */
export function replaceRecord(runDir: string, record: LabRecord): void {
  withTemporary(runDir, record, (temporary) => renameSync(temporary, recordFile(runDir, record.id)));
}

export function removeRecord(runDir: string, id: string): void {
  rmSync(recordFile(runDir, id), { force: true });
}

/**
 * The record is written aside, so that no reader sees a part of it. The file's name has the
 * writer's identity, for removeDeadTemporaries.
 */
function withTemporary<T>(runDir: string, record: LabRecord, publish: (temporary: string) => T): T {
  const file = join(recordDir(runDir), `${record.id}.${ownerToken(currentOwner())}${temporarySuffix}`);
  try {
    writeFileSync(file, `${JSON.stringify({ version: formatVersion, ...record }, null, 2)}\n`, {
      flag: 'wx',
      mode: 0o644,
    });
    return publish(file);
  } finally {
    rmSync(file, { force: true });
  }
}

export function listRecords(runDir: string): RecordList {
  const records: LabRecord[] = [];
  const problems: RecordProblem[] = [];
  for (const name of recordDirEntries(runDir)) {
    if (name.endsWith(temporarySuffix)) continue;
    const file = join(recordDir(runDir), name);
    try {
      const text = readRecordText(file);
      if (text === null) continue;
      const record = parseRecord(text);
      if (`${record.id}.json` !== name) throw new Error(`it is the record of lab ${record.id}`);
      records.push(record);
    } catch (error) {
      problems.push({ file, reason: error instanceof Error ? error.message : String(error) });
    }
  }
  return { records: records.toSorted((left, right) => (left.createdAt < right.createdAt ? -1 : 1)), problems };
}

/** Null when there is none, or when it is no record of this version. */
export function readRecord(runDir: string, id: string): LabRecord | null {
  try {
    const text = readRecordText(recordFile(runDir, id));
    return text === null ? null : parseRecord(text);
  } catch {
    return null;
  }
}

function recordDirEntries(runDir: string): readonly string[] {
  try {
    return readdirSync(recordDir(runDir));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

/**
 * Null when it was removed since. The type is checked first, because opening a FIFO would block.
 */
function readRecordText(file: string): string | null {
  try {
    const stat = lstatSync(file);
    if (!stat.isFile()) throw new Error('it is not a regular file');
    if (stat.size > maxRecordBytes) throw new Error(`it is larger than ${maxRecordBytes} bytes`);
    return readFileSync(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

/**
 * Throws when the text is not a record of this version. Its names become paths that are removed, so
 * each is checked.
 */
export function parseRecord(text: string): LabRecord {
  const value: unknown = JSON.parse(text);
  if (typeof value !== 'object' || value === null) throw new Error('it is not a JSON object');
  const { version, id, name, hosts, owner, createdAt, mtu, delayMs, lossPercent } = value as Record<string, unknown>;
  if (version !== formatVersion) throw new Error(`its version is ${JSON.stringify(version)}, not ${formatVersion}`);
  if (typeof id !== 'string' || !idPattern.test(id)) throw new Error('its id is not 8 hexadecimal digits');
  if (name !== null && typeof name !== 'string') throw new Error('its name is not a string');
  if (!Array.isArray(hosts) || !hosts.every((host) => typeof host === 'string'))
    throw new Error('its hosts are not strings');
  if (typeof mtu !== 'number' || typeof delayMs !== 'number' || typeof lossPercent !== 'number') {
    throw new Error('its mtu, delayMs or lossPercent is not a number');
  }
  if (typeof createdAt !== 'string' || Number.isNaN(Date.parse(createdAt)))
    throw new Error('its createdAt is not a date');
  const knownOwner = owner === null ? null : parseOwner(owner);
  if (knownOwner === null && owner !== null) throw new Error('its owner is malformed');
  const spec = labSpec({ hosts, mtu, delayMs, lossPercent, ...(name === null ? {} : { name }) });
  return { ...spec, id, owner: knownOwner, createdAt };
}

/**
 * Removes the files of writers that were killed between writing a record aside and publishing it.
 */
export function removeDeadTemporaries(runDir: string, view: OwnerView): void {
  for (const name of recordDirEntries(runDir)) {
    if (!name.endsWith(temporarySuffix)) continue;
    const token = name.slice(name.indexOf('.') + 1, -temporarySuffix.length);
    const owner = parseOwnerToken(token);
    if (owner !== null && livenessOf(owner, view) === 'dead') rmSync(join(recordDir(runDir), name), { force: true });
  }
}
