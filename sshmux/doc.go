// Package sshmux carries SSH channels (RFC 4254) over a stream that is already encrypted and authenticated: a mesh
// connection. All SSH sessions of the product use it. `coder ssh` opens the channels itself. For OpenSSH, the package
// sshmux/bridge terminates SSH on the laptop and forwards its channels.
//
// It omits what such a stream makes unnecessary and a long path makes slow: version exchange, key exchange, service
// request and authentication, which take six round trips, and a second layer of encryption. Nothing waits for an answer
// that it does not need: a channel can be used as soon as it is opened, and requests can be sent before earlier ones
// are answered. Windows begin at 2 MiB and grow to 16 MiB while the reader keeps up; those of the SSH library are fixed
// at 2 MiB.
//
// docs/sshmux.md describes the protocol, testdata/frames.txt holds its bytes, and [Version] counts its versions.
package sshmux
