package sftpext

import "encoding/binary"

// duplicate is a copy-data request in progress. It sends READ and WRITE requests with the request's own id, which is
// free because the client's requests wait, so that the server's errors can be passed on as they are.
type duplicate struct {
	id       uint32
	from, to string // handles
	readAt   uint64
	left     uint64 // what is still to be read, unless toEnd
	toEnd    bool
	writeAt  uint64

	writing uint64 // length of the WRITE that the server is asked for; 0 while it is asked to READ
	packet  []byte
}

// parseCopy reads a copy-data request, of which the extension's name has been read.
func parseCopy(id uint32, f *fields) (*duplicate, bool) {
	d := &duplicate{id: id, from: f.string(), readAt: f.uint64(), left: f.uint64(), to: f.string(), writeAt: f.uint64()}
	d.toEnd = d.left == 0
	return d, f.ok
}

// read returns the request for the next piece.
func (d *duplicate) read() []byte {
	n := uint64(MaxData)
	if !d.toEnd {
		n = min(n, d.left)
	}
	d.writing = 0
	b := binary.BigEndian.AppendUint64(appendString(begin(d.packet, typeRead, d.id), d.from), d.readAt)
	d.packet = finish(binary.BigEndian.AppendUint32(b, uint32(n)))
	return d.packet
}

// next takes the server's answer to the last request and returns the next request, or the answer for the client.
func (d *duplicate) next(reply []byte) (request, answer []byte) {
	if len(reply) < idEnd {
		return nil, status(d.id, statusFailure, "unexpected answer")
	}
	f := fields{reply[idEnd:], true}
	if d.writing == 0 && reply[4] == typeData {
		if data := f.bytes(); len(data) > 0 && len(data) <= MaxData {
			return d.write(data), nil
		}
		return nil, status(d.id, statusFailure, "unexpected data")
	}
	code := f.uint32()
	switch {
	case reply[4] != typeStatus || !f.ok:
		return nil, status(d.id, statusFailure, "unexpected answer")
	case d.writing == 0 && code == statusEOF && d.toEnd:
		return nil, status(d.id, statusOK, "")
	case d.writing == 0 && code == statusOK:
		return nil, status(d.id, statusFailure, "no data")
	case code != statusOK:
		return nil, reply
	}
	d.readAt += d.writing
	d.writeAt += d.writing
	d.left -= d.writing
	if !d.toEnd && d.left == 0 {
		return nil, status(d.id, statusOK, "")
	}
	return d.read(), nil
}

func (d *duplicate) write(data []byte) []byte {
	if !d.toEnd {
		data = data[:min(uint64(len(data)), d.left)]
	}
	d.writing = uint64(len(data))
	b := binary.BigEndian.AppendUint64(appendString(begin(d.packet, typeWrite, d.id), d.to), d.writeAt)
	d.packet = finish(append(binary.BigEndian.AppendUint32(b, uint32(len(data))), data...))
	return d.packet
}
