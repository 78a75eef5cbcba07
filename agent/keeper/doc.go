// Package keeper is the small process above an agent's. It outlives the agent's own process, which may crash, be killed for
// its memory, or be restarted with a newer program:
//
//	keeper ── starts, restarts with growing pauses ──▶ agent (the mesh, SSH, scripts)
//	   │                                                  │
//	   ├── terminals: their shells are its children  ◀────┘ connections, passed over a socket pair
//	   └── buries orphans, as the first process of a container has to
//
// The socket pair is descriptor 3 of the agent. The keeper sends the agent's token on it first, so that no environment has it,
// and then receives one end of a new connection per viewer of a terminal. Its end tells either that the other is gone.
//
// An orderly end of the agent ends the keeper and every terminal. It knows neither the server nor the mesh.
package keeper
