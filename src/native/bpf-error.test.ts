import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { BpfError, bpfReason } from './bpf-error.ts';

describe('a BPF error', () => {
  test("has a name for the kernel's own errno and for libbpf's", () => {
    assert.equal(new BpfError(-524, 'load BPF', 'x', '').code, 'ENOTSUP');
    assert.equal(new BpfError(-4003, 'open BPF', 'x', '').code, 'EINVAL');
    assert.equal(new BpfError(-1, 'load BPF', 'x', '').code, 'EPERM');
  });

  test('says what, on what and why, and keeps the whole log', () => {
    const error = new BpfError(
      -13,
      'load BPF',
      'a.o: p',
      '-- BEGIN PROG LOAD LOG --\nR0 !read_ok\n-- END PROG LOAD LOG --',
    );
    assert.equal(error.message, 'load BPF: EACCES (a.o: p: R0 !read_ok)');
    assert.match(error.log, /^-- BEGIN/);
  });

  test('has no reason when nothing was said', () => {
    assert.equal(bpfReason(''), '');
    assert.equal(new BpfError(-22, 'open BPF', 'a.o', '').message, 'open BPF: EINVAL (a.o)');
  });

  test("takes libbpf's first line where no program was refused", () => {
    const log = "libbpf: map 'x': failed to create\nlibbpf: failed to load object\n";
    assert.equal(bpfReason(log), "map 'x': failed to create");
  });

  test("takes the verifier's last word, also from a log that was cut", () => {
    assert.equal(bpfReason('-- BEGIN PROG LOAD LOG --\n0: (95)\nR0 !read_ok'), 'R0 !read_ok');
    assert.equal(
      bpfReason('-- BEGIN PROG LOAD LOG --\nR0 !read_ok\nprocessed 1 insns\n-- END PROG LOAD LOG --'),
      'R0 !read_ok',
    );
  });
});
