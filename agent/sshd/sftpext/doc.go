// Package sftpext adds extensions of OpenSSH's SFTP protocol to a server that has no way to add any,
// github.com/pkg/sftp's.
//
// A Filter stands between client and server, in both directions:
//
//	client ── requests ──▶ Filter.Read ──▶ server
//	client ◀── answers ── Filter.Write ◀── server
//
// It passes packets on as they come, without a copy, except for the few below, which it holds as a whole:
//
//   - VERSION: it announces the extensions.
//   - copy-data (draft-ietf-secsh-filexfer-extensions-00, section 7; sftp's "cp"): once the server has answered
//     everything before it, the Filter sends READ and WRITE requests of its own, one at a time, and keeps their
//     answers. It reads nothing from the client meanwhile, so the client's further packets wait in the channel's
//     window, and no request id can be in use twice.
//   - expand-path@openssh.com ("~user/file" in scp and sftp) becomes a REALPATH request.
//   - limits@openssh.com: answered with the sizes that the server can handle, so that clients send fewer, larger
//     packets.
//   - OPEN, CLOSE and HANDLE: they tell which handles are of the same file.
//
// What the client sends is not trusted: packets over MaxPacket end the session, as they do in the server.
package sftpext
