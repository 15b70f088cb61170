// Calls about devices: listing, opening and closing them, their ports and counters, and their
// events.

import { MillraceError, UsageError } from '../../../errors.ts';
import type { Device } from '../../../verbs/index.ts';
import { eventKinds, PROTOCOL_VERSION } from '../../protocol/index.ts';
import type { DeviceObject } from '../guest/guest-objects.ts';
import type { GuestState } from '../guest/guest-state.ts';
import type { CallHandler } from './call-handler.ts';

/** Long results are JSON: they are read once, not in a loop. */
const MAX_JSON_BYTES = 30_000;

export const hello: CallHandler = (guest, args, results) => {
  const version = args.u32();
  if (version !== PROTOCOL_VERSION) {
    const message = `remoting protocol ${version}: this backend speaks ${PROTOCOL_VERSION}; update the older of the two`;
    throw new MillraceError('MILLRACE_ERR_UNSUPPORTED', message);
  }
  guest.label = args.text().slice(0, 64);
  results.u32(PROTOCOL_VERSION);
};

export const listDevices: CallHandler = (guest, _args, results) => {
  results.u32(guest.options.grants.length);
  for (const { name, soft } of guest.options.grants) results.text(name, 64).text(soft?.wire ?? '', 64);
};

export const openDevice: CallHandler = (guest, args, results) => {
  const grant = guest.grant(args.text());
  using undo = new DisposableStack();
  guest.quota.takeWith(undo, 'devices');
  const device = undo.use(guest.options.openDevice(grant));
  const channel = device.createChannel();
  const entry: DeviceObject = { device, channel, handle: () => handle, children: 0 };
  const handle = guest.objects.add('device', entry);
  const { info, attributes } = device;
  results.u32(handle).text(JSON.stringify({ info, attributes }), MAX_JSON_BYTES);
  forwardEvents(guest, device, handle);
  guest.devices.add(entry);
  guest.options.onDevice(entry);
  undo.move();
};

function forwardEvents(guest: GuestState, device: Device, handle: number): void {
  const { events } = device;
  events.on('qpFatal', ({ qpNumber, reason }) => guest.addQpFatal(handle, qpNumber, reason));
  events.on('cqOverrun', (cq) => {
    const subject = guest.handles.get(cq) ?? 0;
    guest.addEvent({ kind: eventKinds.cqOverrun, device: handle, subject, text: '' });
  });
  events.on('srqLimit', (srq) => {
    const subject = guest.handles.get(srq) ?? 0;
    guest.addEvent({ kind: eventKinds.srqLimit, device: handle, subject, text: '' });
  });
  events.on('portChange', ({ portNumber, state }) =>
    guest.addEvent({ kind: eventKinds.portChange, device: handle, subject: portNumber, text: state }),
  );
  events.on('deviceGone', () => guest.addEvent({ kind: eventKinds.deviceGone, device: handle, subject: 0, text: '' }));
}

export const closeDevice: CallHandler = (guest, args) => {
  const handle = args.u32();
  const entry = guest.objects.get('device', handle);
  refuseWithChildren('device', entry.children);
  guest.objects.remove(handle);
  guest.devices.delete(entry);
  guest.options.onDeviceClosing(entry);
  entry.device.close();
  guest.quota.give('devices');
};

export const ports: CallHandler = (guest, args, results) => {
  const { device } = guest.objects.get('device', args.u32());
  results.text(JSON.stringify(device.ports), MAX_JSON_BYTES);
};

export const counters: CallHandler = (guest, args, results) => {
  const { device } = guest.objects.get('device', args.u32());
  results.text(JSON.stringify(device.counters), MAX_JSON_BYTES);
};

export const takeEvents: CallHandler = (guest, _args, results) => {
  const events = guest.takeEvents();
  results.u32(events.length);
  // 256 events of at most 24 words fit.
  for (const { kind, device, subject, text } of events) results.u32(kind).u32(device).u32(subject).text(text, 80);
};

/** Throws unless all children are closed. A frontend closes them first. */
export function refuseWithChildren(what: string, children: number): void {
  if (children > 0) throw new UsageError(`close a ${what}: ${children} objects that were made from it are open`);
}
