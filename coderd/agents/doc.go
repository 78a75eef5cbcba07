// Package agents owns what a build left behind for people to use: its resources and the agents in them. It stores them
// as a provisioner reports them, authenticates agent tokens, serves the agents' RPCs on the mesh, and shows agents over
// HTTP.
//
// Liveness lives in memory: an agent is connected while its Connect stream lives, and the stream lives while the server
// hears from the agent: in the stream, or over the agent's coordinator connection to this server. The second is
// cheaper, so the agent sends few heartbeats while it has it. The database is written when a state changes (connected,
// disconnected, a lifecycle step), never per heartbeat.
//
//	           first stream                stream ends
//	connecting ------------> connected ----------------> disconnected
//	    |                        ^                            |
//	    | connection timeout     +----------------------------+
//	    v                                next stream
//	 timeout
//
// When a server has ended, the agents that were connected to it have a moment to come back, to any server, before a
// sweep marks them disconnected.
//
// The package must not know how builds are made, nor how the mesh carries its RPCs: a function that turns a mesh source
// address into an agent identifies the caller.
package agents
