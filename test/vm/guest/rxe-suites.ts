// All that is asked of rxe, in one process: to start Node and to load what the suites share takes
// long in a guest.

import './conformance-rxe.ts';
import './rxe.ts';
import './vortex-rxe.ts';
