// The QP state machine: every pair of states, every attribute, and what may be posted in which
// state.

import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { access, type QpAttributes, type QpState } from '../../src/verbs/index.ts';
import { initAttributes, modifyToRts, PSN_OF_LEFT, PSN_OF_RIGHT, rtrAttributes, rtsAttributes } from './connect.ts';
import type { Rig } from './rig.ts';
import { type ConformanceTarget, conforms } from './target.ts';
import { reap, settle, turn } from './wait.ts';

const states: readonly QpState[] = ['RESET', 'INIT', 'RTR', 'RTS', 'SQD', 'ERR'];
const usage = { code: 'MILLRACE_ERR_USAGE' };

// InfiniBand specification, figure "QP/EE context state diagram".
const legal: Readonly<Record<string, readonly QpState[]>> = {
  RESET: ['RESET', 'INIT'],
  INIT: ['RESET', 'ERR', 'INIT', 'RTR'],
  RTR: ['RESET', 'ERR', 'RTS'],
  RTS: ['RESET', 'ERR', 'RTS', 'SQD'],
  SQD: ['RESET', 'ERR', 'SQD', 'RTS'],
  ERR: ['RESET', 'ERR'],
};

function peerOfLeft({ right }: Rig): { device: Rig['right']['device']; qpNumber: number; psn: number } {
  return { device: right.device, qpNumber: right.qp.number, psn: PSN_OF_RIGHT };
}

function rtsStepsLeft(rig: Rig, to: QpState): void {
  modifyToRts(rig.left.qp, to, PSN_OF_LEFT, peerOfLeft(rig), rig.connectOptions('left'));
}

/** What a step needs, if it is one. */
function attributesOf(rig: Rig, from: QpState, to: QpState): QpAttributes {
  if (from === 'RESET' && to === 'INIT') return initAttributes();
  if (from === 'INIT' && to === 'RTR')
    return rtrAttributes(rig.left.device, peerOfLeft(rig), rig.connectOptions('left'));
  if (from === 'RTR' && to === 'RTS') return rtsAttributes(PSN_OF_LEFT);
  return {};
}

const outOfRange: Readonly<Partial<Record<keyof QpAttributes, readonly unknown[]>>> = {
  portNumber: [0, 256, 1.5],
  access: [16, -1],
  pathMtu: [0, 300, 8192],
  destQpNumber: [-1, 0x100_0000],
  rqPsn: [-1, 0x100_0000],
  sqPsn: [-1, 0x100_0000, Number.NaN],
  maxDestRdAtomic: [-1, 1000],
  maxRdAtomic: [-1, 1000],
  minRnrTimer: [-1, 32],
  timeout: [-1, 32],
  retryCount: [-1, 8],
  rnrRetry: [-1, 8],
};

const steps: readonly (readonly [QpState, QpState])[] = [
  ['RESET', 'INIT'],
  ['INIT', 'RTR'],
  ['RTR', 'RTS'],
];

export function qpStateMachine(target: ConformanceTarget): void {
  describe(`${target.name}: the QP state machine`, () => {
    for (const from of states) {
      for (const to of states) {
        const isLegal = (legal[from] ?? []).includes(to);
        const name = isLegal ? `${from} leads to ${to}` : `${from} does not lead to ${to}, and trying changes nothing`;
        const needs = from === 'SQD' || to === 'SQD' ? ({ needs: 'sendQueueDrain' } as const) : {};
        conforms(target, name, { isConnected: false, ...needs }, (rig) => {
          rtsStepsLeft(rig, from);
          const { qp } = rig.left;
          if (isLegal) {
            qp.modify(to, attributesOf(rig, from, to));
            assert.equal(qp.state, to);
          } else {
            const known = [initAttributes(), rtrAttributes(rig.left.device, peerOfLeft(rig)), rtsAttributes(0), {}];
            for (const attributes of known) assert.throws(() => qp.modify(to, attributes), usage);
            assert.equal(qp.state, from);
          }
        });
      }
    }

    for (const [from, to] of steps) {
      conforms(
        target,
        `${from} to ${to} wants each of its attributes, in range, and no other`,
        { isConnected: false },
        (rig) => {
          rtsStepsLeft(rig, from);
          const { qp } = rig.left;
          const attributes = attributesOf(rig, from, to);
          const refuses = (wrong: QpAttributes, why: string): void => {
            assert.throws(() => qp.modify(to, wrong), usage, why);
            assert.equal(qp.state, from, why);
          };
          for (const name of Object.keys(attributes)) {
            refuses({ ...attributes, [name]: undefined }, `without ${name}`);
            for (const value of outOfRange[name as keyof QpAttributes] ?? []) {
              refuses({ ...attributes, [name]: value }, `${name} ${String(value)}`);
            }
          }
          const foreign: QpAttributes = from === 'RTR' ? { rqPsn: 1 } : { timeout: 14 };
          refuses({ ...attributes, ...foreign }, 'with an attribute of another step');
          const path = attributes.path === undefined ? undefined : { ...attributes.path, gid: 'nowhere at all' };
          if (path !== undefined) {
            refuses({ ...attributes, path }, 'with a GID that is none');
            refuses({ ...attributes, path: { ...path, gid: '::1', lid: 65_536 } }, 'with a LID of more than 16 bits');
          }
          qp.modify(to, attributes);
          assert.equal(qp.state, to);
        },
      );
    }

    conforms(target, 'nothing can be sent before RTS, and nothing received in RESET', { isConnected: false }, (rig) => {
      const { left } = rig;
      const send = (): unknown => left.tryPost((batch) => batch.send(1).sge(...left.at(0, 8)));
      const receive = (): unknown => left.receive(1, 0, 8);
      assert.throws(send, usage);
      assert.throws(receive, usage);
      left.qp.modify('INIT', initAttributes());
      assert.throws(send, usage);
      left.qp.modify('RTR', rtrAttributes(left.device, peerOfLeft(rig), rig.connectOptions('left')));
      assert.throws(send, usage);
      receive();
    });

    conforms(
      target,
      'a receive posted in INIT is there when the first message comes',
      { isConnected: false },
      async (rig) => {
        const { left, right } = rig;
        right.qp.modify('INIT', initAttributes());
        right.receive(5, 0, 64);
        const peerOfRight = { device: left.device, qpNumber: left.qp.number, psn: PSN_OF_LEFT };
        right.qp.modify('RTR', rtrAttributes(right.device, peerOfRight, rig.connectOptions('right')));
        rtsStepsLeft(rig, 'RTS');
        left.put(0, 'early');
        left.post((batch) => batch.send(1).sge(...left.at(0, 5)));
        const [received] = await right.received();
        assert.deepEqual([received?.wrId, received?.byteLength, right.text(0, 5)], [5, 5, 'early']);
      },
    );

    conforms(target, 'access taken from a QP in RTS is refused to its peer', {}, async ({ left, right }) => {
      const write = (wrId: number): void =>
        left.post((batch) => batch.write(wrId, right.mr.address, right.mr.rkey).sge(...left.at(0, 8)));
      for (let times = 0; times < 10; times++) {
        write(1);
        assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
        await turn();
      }
      right.qp.modify('RTS', { access: access.remoteRead });
      write(2);
      const [refused] = await left.sentStatuses();
      assert.ok(refused === '2:REM_ACCESS_ERR' || refused === '2:REM_INV_REQ_ERR', refused);
    });

    conforms(
      target,
      'SQD holds back what is sent, not what is received, until RTS',
      { needs: 'sendQueueResume' },
      async ({ left, right }) => {
        right.receive(1, 0, 8);
        left.receive(2, 0, 8);
        left.qp.modify('SQD');
        left.post((batch) => batch.send(3).sge(...left.at(16, 8)));
        right.post((batch) => batch.send(4).sge(...right.at(16, 8)));
        assert.deepEqual(await left.receivedStatuses(), ['2:SUCCESS']);
        assert.deepEqual(await right.sentStatuses(), ['4:SUCCESS']);
        assert.deepEqual(await settle(left.sendCq), []);
        assert.deepEqual(await settle(right.receiveCq), []);
        left.qp.modify('RTS');
        assert.deepEqual(await right.receivedStatuses(), ['1:SUCCESS']);
        assert.deepEqual(await left.sentStatuses(), ['3:SUCCESS']);
      },
    );

    conforms(target, 'RESET forgets what was posted, and the QPs can be connected again', {}, async (rig) => {
      const { left, right } = rig;
      for (let round = 0; round < 3; round++) {
        right.receive(1, 0, 8);
        left.post((batch) => batch.write(2, right.mr.address, right.mr.rkey).sge(...left.at(0, 8)));
        assert.deepEqual(await left.sentStatuses(), ['2:SUCCESS']);
        left.qp.modify('RESET');
        right.qp.modify('RESET');
        // A device with a thread of its own may have detected the end of its peer before, and
        // flushed the receive.
        reap(right.receiveCq);
        await turn();
        rig.connect();
        right.receive(3, 0, 8);
        left.post((batch) => batch.send(4).sge(...left.at(0, 8)));
        assert.deepEqual(await right.receivedStatuses(), ['3:SUCCESS']);
        assert.deepEqual(await left.sentStatuses(), ['4:SUCCESS']);
      }
      assert.deepEqual(await settle(right.receiveCq), []);
    });
  });
}
