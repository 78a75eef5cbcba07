// Package sshmux carries the channels of an SSH connection (RFC 4254) over a stream that is encrypted and whose ends are known
// already: a mesh connection. All SSH sessions of the product travel this way. `coder ssh` opens the channels itself; for OpenSSH the
// package sshmux/bridge ends SSH on the laptop and passes its channels on.
//
// It leaves out what such a stream makes needless and a long path makes slow. There is no version exchange, key exchange, service
// request or authentication, which take six round trips, and no second encryption. Nothing waits for an answer that it does not
// need: a channel can be used as soon as it was opened, and requests can be sent before earlier ones are answered. Windows
// begin at 2 MiB and grow to 16 while the reader keeps up, where those of the SSH library are fixed at 2.
//
// docs/sshmux.md describes the protocol; testdata/frames.txt holds its bytes. [Version] counts its versions.
package sshmux
