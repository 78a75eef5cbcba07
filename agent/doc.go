// Package agent is what runs in a workspace: it joins the mesh with its token, serves SSH, port forwards and speed tests to
// the clients that the coordinator introduces, runs the workspace's scripts, and keeps the server informed.
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
// What peers may open is decided twice: the coordinator introduces only clients that may use the workspace, and inbound gives
// every other kind of participant nothing.
//
// A lost coordinator or server ends no session. The agent dials again with growing pauses; reports and log lines wait, within
// bounds, and are sent again under the same numbers. Scripts run once per build: what has been run is remembered in the state
// folder, so that a restarted agent does not run them again.
//
// The lifecycle, as reported:
//
//	created ─▶ starting ─▶ ready | start_error | start_timeout ─▶ shutting_down ─▶ off | shutdown_error | shutdown_timeout
//
// Package agent knows the server only through its RPC schema and the coordinator's protocol.
package agent
