package forward

import (
	"errors"
	"io"
	"net"
	"sync"
)

const bufferSize = 128 << 10 // bytes per direction of one stream while it flows

var buffers = sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}

// Copy moves bytes from src to dst until src ends or either fails, through a pooled buffer. The end of src is no error.
func Copy(dst io.Writer, src io.Reader) (int64, error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	return copyBuffer(dst, src, *buf)
}

// copyBuffer is a plain loop: io.Copy would hand a *net.TCPConn the reader and get a 32 KiB buffer of its own.
func copyBuffer(dst io.Writer, src io.Reader, buf []byte) (total int64, err error) {
	for {
		n, readErr := src.Read(buf)
		if n > 0 {
			w, writeErr := dst.Write(buf[:n])
			total += int64(w)
			if writeErr != nil {
				return total, writeErr
			}
		}
		if readErr != nil {
			if errors.Is(readErr, io.EOF) {
				return total, nil
			}
			return total, readErr
		}
	}
}

type halfCloser interface{ CloseWrite() error }

// Pipe joins a and b until both directions have ended, and closes both. The end of one direction is passed on as the end of
// that direction only, so a peer that sent everything can still wait for its answer. An error in one direction ends both. It
// blocks.
func Pipe(a, b io.ReadWriteCloser) (toA, toB int64) {
	var once sync.Once
	closeBoth := func() {
		a.Close()
		b.Close()
	}
	direction := func(dst, src io.ReadWriteCloser, n *int64) {
		var err error
		*n, err = Copy(dst, src)
		if err == nil {
			if half, ok := dst.(halfCloser); ok && half.CloseWrite() == nil {
				return
			}
		}
		once.Do(closeBoth)
	}
	var wg sync.WaitGroup
	wg.Go(func() { direction(a, b, &toA) })
	direction(b, a, &toB)
	wg.Wait()
	once.Do(closeBoth)
	return toA, toB
}

// Abort closes a connection so that its peer sees a reset where the transport can: "nothing listens there" must not look like
// an empty answer.
func Abort(conn net.Conn) {
	if tcp, ok := conn.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0) // a failure leaves the plain close below
	}
	conn.Close()
}
