// The daemon's side of direct connections: programs whose bytes go through shared rings.

export { DirectServer } from './direct-server.ts';
export type { LibraryNews } from './library-programs.ts';
export type { DirectWord, Mesh } from './mesh.ts';
export type { OfferReport } from './offer-reports.ts';
