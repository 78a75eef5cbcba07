// Package netio copies bytes between connections, one way or both ways with half-close, and reaches the descriptors
// below them.
//
// It knows neither the mesh nor SSH: a connection is what it implements of io and net.
package netio

import (
	"errors"
	"io"
	"sync"
	"syscall"
)

const (
	// idleSize is what a direction holds while it waits for data, in bytes, and bufferSize what it holds while data
	// flows. A read that fills the first is followed by one into the second, until one comes that would have fitted
	// into the first.
	idleSize   = 4 << 10
	bufferSize = 128 << 10
)

var (
	idle    = pool(idleSize)
	buffers = pool(bufferSize)
)

func pool(size int) *sync.Pool {
	return &sync.Pool{New: func() any { b := make([]byte, size); return &b }}
}

// Copy copies from src to dst until src ends or either fails, and returns how many bytes were written. The end of src
// is not an error. Copy blocks; closing src, or dst while Copy writes, ends it. src must be a stream: a datagram larger
// than 4 KiB may be cut.
//
// It reads and writes through pooled buffers, and never through dst's ReadFrom or src's WriteTo. Where a connection
// joins the mesh the kernel can splice nothing, and io.Copy would allocate a new buffer of a quarter of the size for a
// *net.TCPConn in each call.
func Copy(dst io.Writer, src io.Reader) (written int64, err error) {
	small := idle.Get().(*[]byte)
	defer idle.Put(small)
	var large *[]byte
	defer func() {
		if large != nil {
			buffers.Put(large)
		}
	}()
	buf := *small
	for {
		n, readErr := src.Read(buf)
		if n > 0 {
			w, err := dst.Write(buf[:n])
			written += int64(w)
			if err == nil && w != n {
				err = io.ErrShortWrite
			}
			if err != nil {
				return written, err
			}
		}
		switch {
		case readErr == io.EOF: //nolint:errorlint // a wrapped io.EOF is an error, as for io.Copy
			return written, nil
		case readErr != nil:
			return written, readErr
		case large == nil && n == idleSize:
			large = buffers.Get().(*[]byte)
			buf = *large
		case large != nil && n < idleSize:
			buffers.Put(large)
			large, buf = nil, *small
		}
	}
}

// Pipe joins a and b until both directions have ended, closes both, and returns how many bytes went to each. The end of
// one direction ends only that direction (CloseWrite), so that a peer that has sent everything can still wait for its
// answer. If a connection does not support half-close, and after an error, both directions end. Pipe blocks; closing
// either connection ends it.
func Pipe(a, b io.ReadWriteCloser) (toA, toB int64) {
	closeBoth := sync.OnceFunc(func() {
		a.Close()
		b.Close()
	})
	defer closeBoth()
	direction := func(dst, src io.ReadWriteCloser) int64 {
		n, err := Copy(dst, src)
		if err != nil || CloseWrite(dst) != nil {
			closeBoth()
		}
		return n
	}
	var wg sync.WaitGroup
	wg.Go(func() { toA = direction(a, b) })
	toB = direction(b, a)
	wg.Wait()
	return toA, toB
}

// CloseWrite ends the sending side of conn: its peer reads io.EOF, and can still answer. The error is
// errors.ErrUnsupported if conn does not support half-close.
func CloseWrite(conn io.Writer) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Abort closes conn so that its peer reads a reset, if the transport supports resets: "nothing listens there" must not
// look like an empty answer. It does not block.
func Abort(conn io.Closer) {
	if tcp, ok := conn.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0) // fails only on a closed connection
	}
	conn.Close()
}

// Control calls f with the descriptor of a file or connection, which stays open meanwhile, and returns its error.
func Control(c syscall.Conn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}
