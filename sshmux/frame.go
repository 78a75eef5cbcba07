package sshmux

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Version is the protocol's version, the last byte of the preamble. Both ends must speak the same one.
//
//	1  2026-08: without a preamble and answers to requests on channels
//	2  2026-11: the preamble, answers, confirmed opens, the window in the open frame
const Version = 2

// preamble is sent by each end before its first frame.
const preamble = "SMX" + string(rune(Version))

// Bounds of the protocol.
const (
	// MaxData is the maximum number of bytes in a data frame.
	MaxData = 32 << 10
	// FirstWindow and MaxWindow are the initial and the maximum number of bytes in flight on a channel.
	FirstWindow = 2 << 20
	MaxWindow   = 16 << 20

	// MaxRequest is the maximum number of bytes of the data of a channel's request, such as a command. Frames of type
	// partName carry the beginning of data that does not fit into one frame. An end that does not know them ignores
	// them, and finds the rest malformed.
	MaxRequest = 256 << 10
	partName   = "part@codermesh"
	maxPart    = MaxData - 128

	headerSize = 5  // after the length
	maxType    = 64 // bytes of a type's name
	// maxBody is the maximum number of bytes after a frame's header.
	maxBody  = MaxData
	maxFrame = headerSize + maxBody
)

type kind byte

const (
	kindOpen kind = iota + 1
	kindAccept
	kindReject
	kindData
	kindStderr
	kindWindow
	kindEOF
	kindClose
	kindRequest
	kindAnswer
	kindGlobal
	kindReply
)

// byServer marks the channels that the server opened.
const byServer = 1 << 31

var (
	errProtocol = errors.New("the other end breaks the protocol")
	errTooLong  = errors.New("the message is too long")
)

// frame is one message. Its kind determines which fields are used.
type frame struct {
	kind    kind
	channel uint32 // 0 for global and reply
	name    string // open, request, global: the type
	want    bool   // open: the sender wants an accept; request: the sender wants an answer
	window  uint32 // open: bytes that the other end may send; window: additional bytes
	reason  uint32 // reject: RFC 4254, section 5.1
	number  uint32 // global: 0 if no reply is wanted; reply: the request's number
	ok      bool   // answer, reply
	data    []byte // the rest of the body
}

// append appends the frame's bytes to b. It fails if the frame is too long.
func (f *frame) append(b []byte) ([]byte, error) {
	begin := len(b)
	b = append(b, 0, 0, 0, 0, byte(f.kind))
	b = binary.BigEndian.AppendUint32(b, f.channel)
	switch f.kind {
	case kindOpen:
		b = binary.BigEndian.AppendUint32(appendBool(b, f.want), f.window)
		b = appendName(b, f.name)
	case kindReject:
		b = binary.BigEndian.AppendUint32(b, f.reason)
	case kindWindow:
		b = binary.BigEndian.AppendUint32(b, f.window)
	case kindRequest:
		b = appendName(appendBool(b, f.want), f.name)
	case kindAnswer:
		b = appendBool(b, f.ok)
	case kindGlobal:
		b = appendName(binary.BigEndian.AppendUint32(b, f.number), f.name)
	case kindReply:
		b = appendBool(binary.BigEndian.AppendUint32(b, f.number), f.ok)
	}
	length := len(b) - begin - 4 + len(f.data)
	if len(f.name) > maxType || length > maxFrame {
		return b[:begin], errTooLong
	}
	b = append(b, f.data...)
	binary.BigEndian.PutUint32(b[begin:], uint32(length))
	return b, nil
}

// parseHeader parses a frame's length and header, and returns how many bytes of body follow.
func parseHeader(head [4 + headerSize]byte) (f frame, body int, err error) {
	length := binary.BigEndian.Uint32(head[:])
	if length < headerSize || length > maxFrame {
		return f, 0, fmt.Errorf("%w: a frame of %d bytes", errProtocol, length)
	}
	f = frame{kind: kind(head[4]), channel: binary.BigEndian.Uint32(head[5:])}
	return f, int(length) - headerSize, nil
}

// parse parses the body of a frame whose kind and channel are known. The frame's data aliases body.
func (f *frame) parse(body []byte) error {
	p := parser{rest: body}
	switch f.kind {
	case kindOpen:
		f.want, f.window, f.name = p.bool(), p.uint32(), p.name()
	case kindReject:
		f.reason = p.uint32()
	case kindWindow:
		f.window = p.uint32()
	case kindRequest:
		f.want, f.name = p.bool(), p.name()
	case kindAnswer:
		f.ok = p.bool()
	case kindGlobal:
		f.number, f.name = p.uint32(), p.name()
	case kindReply:
		f.number, f.ok = p.uint32(), p.bool()
	case kindAccept, kindData, kindStderr, kindEOF, kindClose:
	default:
		return fmt.Errorf("%w: a frame of kind %d", errProtocol, f.kind)
	}
	switch f.kind {
	case kindAccept, kindWindow, kindEOF, kindClose, kindAnswer:
		p.bad = p.bad || len(p.rest) > 0
	case kindGlobal, kindReply:
		p.bad = p.bad || f.channel != 0
	}
	if p.bad {
		return fmt.Errorf("%w: a malformed frame of kind %d", errProtocol, f.kind)
	}
	f.data = p.rest
	return nil
}

// parser reads fields from the front of a body.
type parser struct {
	rest []byte
	bad  bool
}

func (p *parser) take(n int) []byte {
	if p.bad || len(p.rest) < n {
		p.bad = true
		return make([]byte, n)
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

func (p *parser) uint32() uint32 { return binary.BigEndian.Uint32(p.take(4)) }

func (p *parser) bool() bool {
	b := p.take(1)[0]
	p.bad = p.bad || b > 1
	return b == 1
}

func (p *parser) name() string {
	n := int(binary.BigEndian.Uint16(p.take(2)))
	if n > maxType {
		p.bad = true
		return ""
	}
	return string(p.take(n))
}

func appendBool(b []byte, set bool) []byte {
	if set {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendName(b []byte, name string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(name))), name...)
}
