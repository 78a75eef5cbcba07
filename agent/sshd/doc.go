// Package sshd is the SSH server of a workspace: sessions (shell, exec, sftp), forwards of TCP ports and Unix sockets both
// ways, and forwarding of the client's SSH agent and X server.
//
// Who may connect is decided before a connection gets here: the mesh hands over connections of introduced peers only, each
// bound to its WireGuard key. They carry SSH's channels without SSH's transport (package sshmux), so there is no handshake here, no
// authentication and no host key. A session gets everything the workspace's account may do; paths and ports are not restricted
// further. That holds for sftp too: it is served with the account's rights, absolute paths and links lead wherever a shell could go,
// and no further.
//
// What a peer may take is bounded: connections, channels per connection, listeners, environment, time until it speaks the protocol. A
// peer that has been silent for keepaliveLimit is dropped; shorter silence (a laptop asleep) is not.
package sshd
