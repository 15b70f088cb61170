// A remoting backend in a guest: `node remote-backend.js SOCKET DEVICE`. Says when it listens, and
// stays until it is killed.

import { Backend } from '../../../src/remoting/backend/backend.ts';

const [socketPath = '', name = ''] = process.argv.slice(2);
Backend.start({ socketPath, devices: [{ name }] });
console.log('listening');
