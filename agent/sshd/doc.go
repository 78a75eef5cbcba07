// Package sshd is the SSH server of a workspace: sessions (shell, exec, sftp), forwards of TCP ports and Unix sockets
// both ways, and forwarding of the client's SSH agent and X server.
//
// The mesh decides about access before a connection gets here: it delivers only connections of introduced peers, each
// bound to its WireGuard key. They carry SSH's channels without SSH's transport (package sshmux), so there is no
// handshake, no authentication and no host key. A session may do everything that the workspace's account may; paths and
// ports are not restricted further. The same applies to sftp: absolute paths and links lead wherever a shell could go,
// and no further.
//
// Limits apply to each peer: connections, channels per connection, listeners, environment, time until it speaks the
// protocol. The server drops a peer that has been silent for keepaliveLimit, but not one that is silent for less, such
// as a sleeping laptop.
package sshd
