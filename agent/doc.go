// Package agent runs in a workspace. It joins the mesh with its token, serves SSH, port forwards and speed tests to the
// clients that the coordinator introduces, runs the workspace's scripts, and reports to the server.
//
//	token ─▶ coordinator ─▶ mesh node ─▶ AgentService on the server's mesh address
//	                             │            Manifest, then Connect (hello, heartbeats; see pulse),
//	                             │            beside it Lifecycle, ScriptDone and Logs
//	                             ├─ meshport.Session    package sshd
//	                             ├─ meshport.SSH        the same, for stock SSH clients
//	                             ├─ meshport.Visit      region proxies, which show a visa (visas.go)
//	                             ├─ meshport.Speedtest  package speed
//	                             ├─ meshport.Terminal   package terminal, held by package keeper's process
//	                             ├─ meshport.AgentRPC   AgentAPI: listening ports, metadata
//	                             └─ every other port    package forward, to the workspace's loopback interface
//
// Two checks decide what peers may open. The coordinator introduces those that may use the workspace. inbound lets
// clients and servers open every port, region proxies only meshport.Visit, where they show a visa, and others none.
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
