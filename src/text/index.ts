// Words from and for people: names, sizes, addresses, suggestions, printable text.

export { formatHostPort, type HostPort, isHost, isLoopback, isPort, parseHostPort } from './host-port.ts';
export { isNodeName } from './node-name.ts';
export { printable } from './printable.ts';
export { formatSize, isPowerOfTwo, parseSize, sizePattern } from './size.ts';
export { didYouMean } from './suggest.ts';
