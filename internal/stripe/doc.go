// Package stripe carries one stream of bytes over several connections to the same place.
//
// On a long path one TCP connection is slow: it begins with ten packets per round trip, each lost packet halves its rate, and its
// buffers bound what is under way. Several begin that many times faster, and a loss slows down one of them. The stream is cut into
// chunks; each connection takes the next chunk when it has room, so that a slow one takes fewer, and the far end puts them in order.
//
// # Protocol
//
// Every connection is opened by the client and begins with a preamble of 18 bytes: the version (1), 16 random bytes that name the
// stream, and 0 for the first connection of a stream, 1 for one that joins it, 2 for one that stays alone. Nothing answers it: the
// stream's bytes follow at once. On a connection that stays alone they travel as they are. On others there are, in both directions,
// chunks:
//
//	offset  8 bytes, big endian   where in the stream the chunk's bytes belong
//	length  4 bytes               at most MaxChunk; 0 says that the stream ends at offset
//	bytes
//
// and reports of what has arrived, while the stream has several connections:
//
//	offset  8 bytes               every byte before it has been taken in
//	length  4 bytes               0xffffff00 + n, n at most 16
//	offsets n × 8 bytes           of chunks that have arrived
//
// A connection that joins carries chunks when it is known that the other end took it in: the listener answers the preamble with a
// report, at once, and the client answers that with one. A connection that ends before that is dropped, and the stream goes on: what
// the listener has sent on it is sent again by another. Both ends report from then on whenever a connection has joined or been
// asked to, so neither waits for reports that the other does not send.
//
// What is not reported after twice the usual time is sent again by another connection; the copy that comes later is dropped. The
// sender goes no further than Window beyond the last report's offset, and has less under way when chunks begin to take longer
// (pace.go). TCP does the rest: a stream is reliable while its connections are, and ends with an error when one of them breaks.
//
// The name is a secret between the two ends; a connection joins a stream only from the address that began it.
//
// The package does not know what the bytes mean, nor how many connections a path is worth: that is the client's decision.
package stripe
