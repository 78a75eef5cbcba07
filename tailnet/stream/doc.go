// Package stream carries reliable streams of bytes between two nodes of a mesh, in packets that the mesh encrypts and
// authenticates.
//
// It is to the mesh what TCP is to the internet, on a network that already solves half of TCP's problems: the two ends
// know each other, packets cannot be forged, and both ends run this program. A stream therefore needs no handshake, and
// its first packet carries bytes. All streams between two nodes share one estimate of the path. The design handles
// lossy paths and round trips of 200 ms as well as short, clean ones. Recovery follows QUIC's (RFC 9002), and the rate
// follows a model of the path like BBR's (congestion.go).
//
// # Protocol, version 1
//
// Two nodes have one association, which begins with the first packet. A packet is
//
//	version   1 byte               1
//	epoch     4 bytes, big endian  of the sender's end of the association
//	peer      4 bytes              the receiver's epoch; 0 while the sender does not know it
//	number    6 bytes              grows with each packet of an epoch and is never reused
//	frames    until the packet's end
//
// An epoch is the time at which its end started, in tenths of a second since 1970, or one more than the last epoch.
// Like WireGuard's timestamps it must grow, and it is compared as a serial number. A packet with a higher epoch means
// that the other end has restarted: streams with the former epoch are over. The receiver answers a packet for an epoch
// other than its own with an empty packet that carries its current one.
//
// A frame is a byte for its kind, followed by fields. Numbers without a size are unsigned LEB128, as in
// encoding/binary. A stream has a number whose lowest bit is 1 if the sender of the packet opened the stream; each end
// counts its own streams.
//
//	1 ack     largest number, delay in µs, number of packets directly below it that also arrived, then pairs of a gap's
//	          length and one less than the number of packets that arrived directly below the gap, until a gap of 0
//	2 ping    must be acknowledged
//	3 window  stream, offset: the other end may send bytes up to it
//	4 stop    stream: its receiver no longer reads it
//	5 reset   stream, reason: it is over in both directions (1 refused, 2 aborted)
//	6 pad     the rest of the packet has no meaning: it probes whether longer packets arrive
//	16 data   stream, offset, length, bytes. Kinds 16 to 19: with bit 1 the stream ends after the bytes; with bit 2 two bytes before
//	          the offset hold the port, and the frame opens the stream unless it is already open
//
// A receiver acknowledges packets with frames other than ack and pad, within ackDelay. A sender retransmits
// unacknowledged frames in new packets. An end that opens a stream may send firstWindow bytes before it receives a
// window. An end accepts a stream with a window frame. It does not acknowledge packets that open a port that the peer
// must not reach.
//
// The other end is authenticated but not trusted: windows, maxStreams and maxRanges limit what it can make this end
// store, and Options.MaxHeld what all peers together can.
package stream
