package netio

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// lengthSize is how many bytes name the length of a datagram on a stream.
const lengthSize = 2

// errLong reports a datagram that UDP does not carry either.
var errLong = errors.New("a datagram has at most 65535 bytes")

// Datagrams returns a connection that carries datagrams over a stream: each comes after its length as two bytes, big
// endian. Write sends one of at most 65535 bytes. Read returns one, without what p has no room for. A Read that its
// deadline ends loses nothing. Closing it closes the stream.
func Datagrams(stream net.Conn) net.Conn {
	return &datagramConn{Conn: stream, r: bufio.NewReaderSize(stream, lengthSize+maxDatagram)}
}

type datagramConn struct {
	net.Conn
	reading sync.Mutex // guards r; held while reading
	r       *bufio.Reader
	writing sync.Mutex // one datagram at a time; held while writing
	out     []byte     // guarded by writing
}

func (c *datagramConn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	head, err := c.r.Peek(lengthSize) // what a deadline interrupts stays in the buffer
	if err != nil {
		return 0, cut(err, len(head))
	}
	size := lengthSize + int(binary.BigEndian.Uint16(head))
	whole, err := c.r.Peek(size)
	if err != nil {
		return 0, cut(err, len(whole))
	}
	n := copy(p, whole[lengthSize:])
	_, err = c.r.Discard(size)
	return n, err
}

// cut returns the error of a stream that ends after some bytes of a datagram.
func cut(err error, got int) error {
	if err == io.EOF && got > 0 { //nolint:errorlint // bufio returns it as it is
		return io.ErrUnexpectedEOF
	}
	return err
}

func (c *datagramConn) Write(p []byte) (int, error) {
	if len(p) > 1<<16-1 {
		return 0, errLong
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	c.out = append(binary.BigEndian.AppendUint16(c.out[:0], uint16(len(p))), p...)
	if _, err := c.Conn.Write(c.out); err != nil {
		return 0, fmt.Errorf("write datagram: %w", err)
	}
	return len(p), nil
}
