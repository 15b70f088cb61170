import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdtempDisposable, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { stringify } from 'yaml';
import { readTlsMaterial } from '../tls/tls-material.ts';
import { changedKeys } from './changes.ts';
import { configJsonSchema } from './json-schema.ts';
import { loadConfig } from './load.ts';
import { parseConfig } from './parse.ts';
import { shownConfig } from './shown.ts';

const folder = () => mkdtempDisposable(join(tmpdir(), 'millrace-config-'));

describe('loading a config', () => {
  test('a file that is not there, a folder, no text and no end are usage errors', async () => {
    await using dir = await folder();
    await writeFile(join(dir.path, 'latin1'), Buffer.from([0x61, 0xe4]));
    await assert.rejects(loadConfig(join(dir.path, 'none')), { code: 'MILLRACE_ERR_USAGE', message: /none: ENOENT/ });
    await assert.rejects(loadConfig(dir.path), { code: 'MILLRACE_ERR_USAGE', message: /EISDIR/ });
    await assert.rejects(loadConfig(join(dir.path, 'latin1')), { message: /not UTF-8/ });
    await assert.rejects(loadConfig('/dev/zero'), { code: 'MILLRACE_ERR_USAGE', message: /is larger than/ });
  });

  test('a missing certificate says which key named it', async () => {
    await using dir = await folder();
    const tls = { ca: join(dir.path, 'ca.pem'), cert: join(dir.path, 'a.pem'), key: join(dir.path, 'a.key') };
    await writeFile(tls.ca, 'ca');
    await assert.rejects(readTlsMaterial(tls), { message: /read tls\.(cert|key) from .*: ENOENT/ });
    await writeFile(tls.cert, 'cert');
    await writeFile(tls.key, 'key');
    assert.deepEqual(Object.values(await readTlsMaterial(tls)).map(String), ['ca', 'cert', 'key']);
  });

  test('what is shown loads again as the same config', async () => {
    await using dir = await folder();
    const path = join(dir.path, 'c.yaml');
    await writeFile(
      path,
      `node: a
tls: { ca: ca.pem, cert: a.pem, key: a.key }
rules: [connect to 10.0.0.0/8]
peers: [{ name: b, address: "fd00::2" }]
etcd: { username: u, password: "********" }
channel: { ringBytes: 8388608 }
api: { http: false }`,
    );
    const { config } = await loadConfig(path);
    await writeFile(path, stringify(shownConfig(config)));
    assert.deepEqual((await loadConfig(path)).config, config);
  });

  test('the password is masked', () => {
    const config = parseConfig('insecure: true\netcd: { username: u, password: secret }', 'c.yaml');
    assert.equal(config.etcd?.password, 'secret');
    assert.doesNotMatch(JSON.stringify(shownConfig(config)), /secret/);
  });
});

describe('two configs', () => {
  test('that are equal have no changed keys', () => {
    const text = 'node: a\nrules: [connect to any]';
    const changed = changedKeys(parseConfig(text, 'c.yaml'), parseConfig(`# new\n${text}`, 'c.yaml'));
    assert.deepEqual(changed, { reloadable: [], needRestart: [] });
  });

  test('that differ say what can be taken over and what cannot', () => {
    const before = parseConfig('node: a\nlanes: 1', 'c.yaml');
    const after = parseConfig(
      'node: b\nlanes: 2\ninsecure: true\netcd: {}\npeers: [{ name: c, address: x }]\nchannel: { dataQps: 3 }',
      'c.yaml',
    );
    assert.deepEqual(changedKeys(before, after), {
      reloadable: ['etcd', 'insecure', 'peers'],
      needRestart: ['channel', 'lanes', 'node'],
    });
  });
});

interface SchemaNode {
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly items?: SchemaNode;
}

function leaves({ properties, items }: SchemaNode, path: string): readonly string[] {
  if (items?.properties !== undefined) return leaves(items, `${path}[]`);
  if (properties === undefined) return [path];
  return Object.entries(properties).flatMap(([key, node]) => leaves(node, path === '' ? key : `${path}.${key}`));
}

describe('the JSON schema', () => {
  test('has the keys that the reference explains', () => {
    const reference = readFileSync(new URL('../../docs/config.md', import.meta.url), 'utf8');
    const missing = leaves(configJsonSchema(), '').filter((key) => !reference.includes(`\`${key}\``));
    assert.deepEqual(missing, []);
  });

  test('knows the keys, their defaults, and that others are refused', () => {
    const { properties, additionalProperties } = JSON.parse(JSON.stringify(configJsonSchema()));
    assert.equal(additionalProperties, false);
    assert.equal(properties.instance.default, 'millrace');
    assert.equal(properties.channel.properties.ringBytes.default, '4MiB');
    assert.equal(properties.channel.properties.dataQps.maximum, 16);
    assert.equal(properties.peers.items.additionalProperties, false);
    assert.equal(properties.node.default, undefined);
  });
});
