// Package sshmux carries the channels of an SSH connection (RFC 4254) over a stream that is already encrypted and whose ends
// are known: a mesh connection. What speaks with an *ssh.Client or serves ssh.NewChannels works on it unchanged.
//
// It leaves out what such a stream makes needless and a long path makes slow. There is no version exchange, key exchange, service
// request or authentication, which take six round trips, and no second encryption. Nothing waits for an answer that is not
// needed: a channel may be used at once when it was opened, and requests on a channel have no reply; a channel that cannot be had, or a
// program that cannot be started, is closed. Windows begin at 2 MiB and grow to 16 while the reader keeps up, where the SSH
// library's are fixed at 2.
//
// # Protocol
//
// The client opens the stream and both sides send frames:
//
//	length   4 bytes, big endian   of what follows
//	kind     1 byte
//	channel  4 bytes               chosen by the side that opened it; the highest bit is set if that is the server
//	...                            by kind:
//
//	open     type (2 bytes of length, text), data of the type (RFC 4254)
//	reject   reason (4 bytes, RFC 4254 section 5.1), text
//	data     bytes, at most MaxData; stderr the same for the extended stream
//	window   bytes more that may be sent (4 bytes)
//	eof, close
//	request  type, data of the type; on a channel
//	global   type, number (4 bytes, 0 wants no reply), data; channel is 0
//	reply    number, 1 or 0, data; channel is 0
//
// Numbers of channels are not used again within a connection, so there is no handshake about their end.
package sshmux
