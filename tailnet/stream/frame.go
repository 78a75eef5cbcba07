package stream

import (
	"encoding/binary"
	"errors"
)

// Version is the protocol's version.
const Version = 1

const (
	headerSize = 15

	kindAck    = 1
	kindPing   = 2
	kindWindow = 3
	kindStop   = 4
	kindReset  = 5
	kindPad    = 6
	kindData   = 16
	flagFin    = 1
	flagPort   = 2

	// maxRanges is how many spans of packets one ack can hold, and how many an end remembers.
	maxRanges = 32
	// maxNumber is the largest packet number, stream number and stream offset.
	maxNumber = 1<<48 - 1

	reasonRefused = 1
	reasonAborted = 2
)

var errMalformed = errors.New("malformed packet")

// header begins each packet.
type header struct {
	epoch, peer uint32
	number      uint64
}

func (h header) append(b []byte) []byte {
	b = append(b, Version)
	b = binary.BigEndian.AppendUint32(b, h.epoch)
	b = binary.BigEndian.AppendUint32(b, h.peer)
	b = binary.BigEndian.AppendUint16(b, uint16(h.number>>32))
	return binary.BigEndian.AppendUint32(b, uint32(h.number))
}

func parseHeader(p []byte) (h header, frames []byte, err error) {
	if len(p) < headerSize || p[0] != Version {
		return h, nil, errMalformed
	}
	h.epoch, h.peer = binary.BigEndian.Uint32(p[1:]), binary.BigEndian.Uint32(p[5:])
	h.number = uint64(binary.BigEndian.Uint16(p[9:]))<<32 | uint64(binary.BigEndian.Uint32(p[11:]))
	return h, p[headerSize:], nil
}

// frame is one received frame. Its kind determines which fields are set.
type frame struct {
	kind   byte
	id     streamID
	offset uint64 // of data and window; a reset's reason; an ack's delay in µs
	data   []byte // aliases the packet
	fin    bool
	opens  bool // port is set
	port   uint16
	acked  [maxRanges]span // highest first
	spans  int             // of acked
}

// streamID identifies a stream of an association.
type streamID struct {
	number uint64
	ours   bool // this end opened it
}

// wire returns the stream's number in packets that this end sends.
func (id streamID) wire() uint64 {
	if id.ours {
		return id.number<<1 | 1
	}
	return id.number << 1
}

// parse parses the first frame of p and returns the bytes after it.
func (f *frame) parse(p []byte) (rest []byte, err error) {
	r := reader{p: p[1:]}
	f.kind = p[0]
	switch f.kind {
	case kindAck:
		f.parseAck(&r)
	case kindPing:
	case kindPad:
		r.p = nil
	case kindWindow, kindReset:
		f.id = r.id()
		f.offset = r.number()
	case kindStop:
		f.id = r.id()
	case kindData, kindData | flagFin, kindData | flagPort, kindData | flagFin | flagPort:
		f.fin, f.opens = f.kind&flagFin != 0, f.kind&flagPort != 0
		f.kind = kindData
		f.id = r.id()
		if f.opens {
			f.port = r.uint16()
		}
		f.offset = r.number()
		f.data = r.bytes(r.number())
	default:
		return nil, errMalformed
	}
	if r.bad {
		return nil, errMalformed
	}
	return r.p, nil
}

func (f *frame) parseAck(r *reader) {
	high := r.number()
	f.offset = r.number()
	f.spans = 0
	for more := r.number(); !r.bad; more = r.number() {
		if more > high {
			r.bad = true
			return
		}
		if f.spans == maxRanges {
			r.bad = true
			return
		}
		f.acked[f.spans] = span{high - more, high + 1}
		f.spans++
		gap := r.number()
		if gap == 0 || r.bad {
			return
		}
		if high-more < gap+1 { // a gap spans at least one number, and an acknowledged one follows
			r.bad = true
			return
		}
		high = high - more - gap - 1
	}
}

// appendAck appends an ack of the received packets, highest spans first, in at most room bytes. room must be at least
// 40.
func appendAck(b []byte, received ranges, delay uint64, room int) []byte {
	limit := len(b) + room - 1 // the last byte ends the list
	i := len(received) - 1
	b = append(b, kindAck)
	b = binary.AppendUvarint(b, received[i].end-1)
	b = binary.AppendUvarint(b, delay)
	b = binary.AppendUvarint(b, received[i].end-1-received[i].start)
	for n := 1; i > 0 && n < maxRanges && len(b)+16 <= limit; n++ {
		gap := received[i].start - received[i-1].end
		i--
		b = binary.AppendUvarint(b, gap)
		b = binary.AppendUvarint(b, received[i].end-1-received[i].start)
	}
	return append(b, 0)
}

func appendWindow(b []byte, id streamID, offset uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(append(b, kindWindow), id.wire()), offset)
}

func appendReset(b []byte, id streamID, reason uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(append(b, kindReset), id.wire()), reason)
}

func appendStop(b []byte, id streamID) []byte {
	return binary.AppendUvarint(append(b, kindStop), id.wire())
}

// maxDataHeader is the maximum length of a data frame before its bytes.
const maxDataHeader = 1 + 7 + 2 + 7 + 2

// appendData appends a data frame without its bytes.
func appendData(b []byte, id streamID, opens bool, port uint16, offset uint64, n int, fin bool) []byte {
	kind := byte(kindData)
	if fin {
		kind |= flagFin
	}
	if opens {
		kind |= flagPort
	}
	b = binary.AppendUvarint(append(b, kind), id.wire())
	if opens {
		b = binary.BigEndian.AppendUint16(b, port)
	}
	return binary.AppendUvarint(binary.AppendUvarint(b, offset), uint64(n))
}

// reader reads fields from a packet. bad is set if the packet was too short or malformed.
type reader struct {
	p   []byte
	bad bool
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.p)
	if n <= 0 || v > maxNumber {
		r.bad = true
		return 0
	}
	r.p = r.p[n:]
	return v
}

func (r *reader) id() streamID {
	v := r.number()
	return streamID{number: v >> 1, ours: v&1 == 0} // the lowest bit is set if the sender opened the stream
}

func (r *reader) uint16() uint16 {
	b := r.bytes(2)
	if r.bad {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

func (r *reader) bytes(n uint64) []byte {
	if r.bad || n > uint64(len(r.p)) {
		r.bad = true
		return nil
	}
	b := r.p[:n]
	r.p = r.p[n:]
	return b
}
