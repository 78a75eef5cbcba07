// Package bridge terminates SSH on the laptop. It is the SSH server behind `coder ssh --stdio` that OpenSSH connects to, and it
// forwards channels and requests to an agent over sshmux:
//
//	OpenSSH ── SSH, over a pipe ── bridge ── sshmux, over the mesh ── agent
//
// The handshake stays between two processes of one machine, so it costs no mesh round trips and can run while the client joins
// the mesh. Only the program that started this one can be at the other end of the pipe, so the server does not authenticate it,
// and the host key is the laptop's own.
//
// The bridge forwards OpenSSH's requests without waiting for earlier answers. It returns the agent's answers in order, each
// before anything that the agent sent after it. A session opens immediately. For other channels the bridge waits for the agent,
// because OpenSSH acts on a rejection.
//
// The agent is not trusted. It may open only the kinds of channels that OpenSSH has requested, and only a limited number at
// once; OpenSSH checks them again.
package bridge
