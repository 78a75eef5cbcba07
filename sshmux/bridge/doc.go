// Package bridge terminates SSH. On the laptop it is the SSH server behind `coder ssh --stdio` that OpenSSH connects
// to, and it forwards channels and requests to an agent over sshmux:
//
//	OpenSSH ── SSH, over a pipe ── bridge ── sshmux, over the mesh ── agent
//
// The handshake stays between two processes of one machine, so it costs no mesh round trips and can run while the
// client joins the mesh. Only the program that started this one can be at the other end of the pipe, so the server does
// not authenticate it, and the host key is the laptop's own.
//
// The bridge forwards OpenSSH's requests without waiting for earlier answers. It returns the agent's answers in order,
// each before anything that the agent sent after it. A session opens immediately. For other channels the bridge waits
// for the agent, because OpenSSH acts on a rejection.
//
// The server calls itself SSH-2.0-OpenSSH_codermesh_VERSION. OpenSSH reports that a program's output is no longer read
// (eow@openssh.com) only to servers whose software begins with "OpenSSH". Clients also look up the faults of OpenSSH's
// releases by that name: OpenSSH by the patterns of its compat.c from OpenSSH_2.* to OpenSSH_7.7*, PuTTY by
// OpenSSH_2.[0-2]* to OpenSSH_6.[0-6]*, paramiko by OpenSSH_[1-6] and OpenSSH_7.[0-7]. Each of them expects a digit
// after the underscore. A letter follows here, so none applies; a digit would claim that release's faults. The rest of
// the name must not contain a hyphen (RFC 4253, section 4.2), which versions may have.
//
// A Server is the same for clients of a network: the gateway of the server, and port 22 of an agent on the mesh. Its
// clients sign in with keys, or the network has proven who they are:
//
//	OpenSSH ── SSH, over a network ── Server ── sshmux ── agent
//
// The agent is not trusted. It may open only the kinds of channels that OpenSSH has requested, and only a limited
// number at once; OpenSSH checks them again.
package bridge
