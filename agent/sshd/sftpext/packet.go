package sftpext

import "encoding/binary"

// Packet types and status codes of draft-ietf-secsh-filexfer-02, sections 3 and 7.
const (
	typeVersion  = 2
	typeOpen     = 3
	typeClose    = 4
	typeRead     = 5
	typeWrite    = 6
	typeRealpath = 16
	typeStatus   = 101
	typeHandle   = 102
	typeData     = 103
	typeExtended = 200
	typeReply    = 201

	statusOK         = 0
	statusEOF        = 1
	statusNoFile     = 2
	statusFailure    = 4
	statusBadMessage = 5
)

const (
	// MaxPacket is the longest packet that server and OpenSSH accept, in bytes, without its length field.
	MaxPacket = 256 << 10
	// MaxData is how much of a file a READ or WRITE packet may contain, in bytes, as in OpenSSH's server.
	MaxData = MaxPacket - 1024

	headLen = 4 + 1 // length and type
	idEnd   = headLen + 4
)

// begin starts a packet in b; finish writes its length.
func begin(b []byte, kind byte, id uint32) []byte {
	return binary.BigEndian.AppendUint32(append(b[:0], 0, 0, 0, 0, kind), id)
}

func finish(packet []byte) []byte {
	binary.BigEndian.PutUint32(packet, uint32(len(packet)-4))
	return packet
}

func appendString(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

// status returns a STATUS packet.
func status(id, code uint32, message string) []byte {
	b := binary.BigEndian.AppendUint32(begin(nil, typeStatus, id), code)
	return finish(appendString(appendString(b, message), "en"))
}

// fields reads a packet's fields. After one that is cut off, ok is false and all further ones are zero.
type fields struct {
	b  []byte
	ok bool
}

// fieldsOf reads what follows a packet's type.
func fieldsOf(packet []byte) fields { return fields{packet[headLen:], true} }

func (f *fields) take(n uint64) []byte {
	if !f.ok || uint64(len(f.b)) < n {
		f.b, f.ok = nil, false
		return nil
	}
	taken := f.b[:n]
	f.b = f.b[n:]
	return taken
}

func (f *fields) uint32() uint32 {
	if b := f.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (f *fields) uint64() uint64 {
	if b := f.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (f *fields) bytes() []byte { return f.take(uint64(f.uint32())) }

func (f *fields) string() string { return string(f.bytes()) }
