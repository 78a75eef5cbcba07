// Package bridge ends SSH on the laptop. It is the SSH server that OpenSSH meets behind `coder ssh --stdio`, and passes channels and
// requests on to an agent over sshmux:
//
//	OpenSSH ── SSH, over a pipe ── bridge ── sshmux, over the mesh ── agent
//
// The handshake stays between two processes of one machine, so it costs no round trip of the mesh and can run while the mesh is
// joined. Nothing but the program that started this one is at the other end of the pipe: the server asks for no proof of who that is,
// and its host key is the laptop's own.
//
// Requests of OpenSSH are passed on without waiting for the answers to earlier ones. It gets each answer of the agent, in order, and
// before what the agent sent after it. A session is opened at once; for other channels OpenSSH acts on a refusal, so the agent is
// waited for.
//
// The agent is not trusted here. It may open channels only of the kinds that OpenSSH has asked for, only so many at once, and OpenSSH
// checks them again.
package bridge
