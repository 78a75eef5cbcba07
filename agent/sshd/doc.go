// Package sshd is the SSH server of a workspace: sessions (shell, exec, sftp), forwards of TCP ports and Unix sockets both
// ways, and forwarding of the client's SSH agent and X server.
//
// Who may connect is decided before a connection gets here: the mesh hands over connections of introduced peers only, each
// bound to its WireGuard key. The server therefore accepts the "none" authentication method and asks for nothing else. A
// session gets everything the workspace's account may do; paths and ports are not restricted further. That holds for sftp
// too: it is served with the account's rights, absolute paths and links lead wherever a shell could go, and no further.
//
// What a peer may take is bounded: connections, channels per connection, listeners, environment, time for the handshake. A
// peer that has been silent for keepaliveLimit is dropped; shorter silence (a laptop asleep) is not.
//
// The accept loop, handshake and connection context are gliderlabs/ssh; channels are served here, because sessions need
// half-close, exit signals and bounds that its session type does not offer.
package sshd
