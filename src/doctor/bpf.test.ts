import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { BpfError } from '../native/bpf-error.ts';
import { outcomeOfTrial, probeBpf } from './bpf.ts';
import { bpfQuestions, libbpfQuestion } from './bpf-questions.ts';
import { systemError } from './fixtures/fake-machine.ts';

const errnos = { EPERM: -1, ENOMEM: -12, EACCES: -13, EINVAL: -22 } as const;

function failWith(code: keyof typeof errnos, log = ''): () => never {
  return () => {
    throw new BpfError(errnos[code], 'load BPF', 'probe.bpf.o', log);
  };
}

describe('a BPF trial', () => {
  test('a missing privilege says nothing about the kernel', () => {
    const outcome = outcomeOfTrial(failWith('EPERM'));
    assert.deepEqual([outcome.answer, outcome.isForbidden], ['unknown', true]);
    assert.match(outcome.fix ?? '', /CAP_BPF/);
  });

  test("the verifier's EACCES is a no, with its last word", () => {
    const log = [
      "libbpf: prog 'probe_sk_msg': BPF program load failed: Permission denied",
      "libbpf: prog 'probe_sk_msg': -- BEGIN PROG LOAD LOG --",
      '0: R1=ctx() R10=fp0',
      'invalid bpf_context access off=400 size=8',
      'processed 1 insns (limit 1000000)',
      '-- END PROG LOAD LOG --',
    ].join('\n');
    const outcome = outcomeOfTrial(failWith('EACCES', log));
    assert.deepEqual([outcome.answer, outcome.isForbidden ?? false], ['no', false]);
    assert.match(outcome.detail, /invalid bpf_context access off=400 size=8/);
  });

  test('a kernel that does not know the feature is a no', () => {
    for (const code of ['EINVAL', 'ENOTSUP', 'ENOSYS']) {
      const refuse = () => {
        throw systemError(code);
      };
      assert.equal(outcomeOfTrial(refuse).answer, 'no');
    }
  });

  test('a machine out of memory leaves the question open', () => {
    assert.equal(outcomeOfTrial(failWith('ENOMEM')).answer, 'unknown');
  });

  test('a mistake of ours is not taken for an answer', () => {
    const mistake = () => {
      throw new TypeError('expected a Uint8Array');
    };
    assert.throws(() => outcomeOfTrial(mistake), TypeError);
  });

  test('objects that were not built leave the questions open and say how to build them', async () => {
    const readObject = () => Promise.reject(systemError('ENOENT'));
    const findings = await probeBpf({ cgroupPath: null, readObject });
    const hook = findings.find((finding) => finding.id === 'connect4');
    assert.deepEqual([hook?.answer, hook?.fix], ['unknown', 'npm run setup']);
    assert.deepEqual(
      findings.map(({ id }) => id),
      [libbpfQuestion, ...bpfQuestions].map(({ id }) => id),
    );
  });

  test('an object that is damaged is not loaded', async () => {
    const findings = await probeBpf({ cgroupPath: null, readObject: async () => new Uint8Array(64) });
    const hook = findings.find((finding) => finding.id === 'connect4');
    assert.equal(hook?.answer, 'no');
    assert.match(hook?.detail ?? '', /open BPF: \w+ \(probe\.bpf\.o, 64 bytes/);
  });
});
