// A program with one direct connection: connects to a server, offers its end, says when it is
// promoted, and waits to be killed.

import { messageKinds } from '../../../src/direct/layout.ts';
import { ip, Socket } from '../../../src/native/index.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { Conversation } from './conversation.ts';

const [path = '', host = '', port = ''] = process.argv.slice(2);
const to = ip(host, Number(port));
const socket = Socket.stream(to.family);
await eventually('a connection', () => socket.connect(to));
const conversation = await Conversation.begin(path);
conversation.offer(1, socket.fd);
await conversation.expect(messageKinds.arena);
await conversation.expect(messageKinds.promote);
process.stdout.write('promoted\n');
await conversation.next();
