// Package keeper is the small parent process of an agent. It outlives the agent, which may crash, be killed for its
// memory, or be restarted with a newer program:
//
//	keeper ── starts, restarts with growing pauses ──▶ agent (the mesh, SSH, scripts)
//	   │                                                  │
//	   ├── terminals: their shells are its children  ◀────┘ connections, passed over a socket pair
//	   └── reaps orphans, as the first process of a container must
//
// The socket pair is descriptor 3 of the agent. On it the keeper first sends the agent's token, which keeps the token
// out of every environment, and then receives one end of a new connection for each viewer of a terminal, and the token
// of the next agent when the workspace has stopped. When either process ends, the other notices because the socket
// closes.
//
// When the workspace stops, the keeper ends every terminal and starts an agent that waits for the next start: the
// machine may outlive the stop. When the agent exits in another orderly way, so do the keeper and every terminal.
// Package keeper knows neither the server nor the mesh.
package keeper
