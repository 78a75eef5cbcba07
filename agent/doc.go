// Package agent runs in a workspace. It joins the mesh with its token, serves SSH, port forwards and speed tests to the
// clients that the coordinator introduces, runs the workspace's scripts, and reports to the server.
//
//	token ─▶ coordinator ─▶ mesh node ─▶ AgentService on the server's mesh address
//	                             │            Manifest, then Connect (hello, a heartbeat every 15 s),
//	                             │            beside it Lifecycle, ScriptDone and Logs
//	                             ├─ meshport.Session    package sshd
//	                             ├─ meshport.Speedtest  package speed
//	                             ├─ meshport.Terminal   package terminal, held by package keeper's process
//	                             ├─ meshport.AgentRPC   AgentAPI: listening ports, metadata
//	                             └─ every other port    package forward, to the workspace's loopback interface
//
// Two checks decide what peers may open: the coordinator introduces only clients that may use the workspace, and
// inbound refuses every other kind of participant.
//
// Sessions survive the loss of the coordinator or server. The agent dials again with growing pauses; reports and log
// lines wait, within bounds, and are sent again under the same numbers. Scripts run once per build: the state folder
// records which have run, so that a restarted agent does not repeat them.
//
// The agent reports these lifecycle states:
//
//	created ─▶ starting ─▶ ready | start_error | start_timeout ─▶ shutting_down ─▶ off | shutdown_error | shutdown_timeout
//
// Package agent knows the server only through its RPC schema and the coordinator's protocol.
package agent
