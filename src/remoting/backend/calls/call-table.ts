// Which handler carries out which call.

import { type CallName, calls } from '../../protocol/index.ts';
import type { CallHandler } from './call-handler.ts';
import * as deviceCalls from './device-calls.ts';
import * as memoryCalls from './memory-calls.ts';
import * as queueCalls from './queue-calls.ts';

const byName: Readonly<Record<CallName, CallHandler>> = {
  hello: deviceCalls.hello,
  listDevices: deviceCalls.listDevices,
  openDevice: deviceCalls.openDevice,
  closeDevice: deviceCalls.closeDevice,
  ports: deviceCalls.ports,
  counters: deviceCalls.counters,
  takeEvents: deviceCalls.takeEvents,
  createPd: memoryCalls.createPd,
  closePd: memoryCalls.closePd,
  allocate: memoryCalls.allocate,
  adopt: memoryCalls.adopt,
  free: memoryCalls.free,
  registerMr: memoryCalls.registerMr,
  closeMr: memoryCalls.closeMr,
  grant: memoryCalls.grant,
  revoke: memoryCalls.revoke,
  createAh: memoryCalls.createAh,
  closeAh: memoryCalls.closeAh,
  createCq: queueCalls.createCq,
  closeCq: queueCalls.closeCq,
  createSrq: queueCalls.createSrq,
  closeSrq: queueCalls.closeSrq,
  setSrqLimit: queueCalls.setSrqLimit,
  createQp: queueCalls.createQp,
  closeQp: queueCalls.closeQp,
  modifyQp: queueCalls.modifyQp,
  qpState: queueCalls.qpState,
};

/** Handlers by the number of their call. */
export const callHandlers: ReadonlyMap<number, CallHandler> = new Map(
  Object.entries(byName).map(([name, handler]) => [calls[name as CallName], handler]),
);
