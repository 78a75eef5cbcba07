package cli

import (
	"errors"
	"io"
	"syscall"

	"github.com/codermesh/codermesh/agent/forward"
)

// halfConn is a connection to the workspace's SSH server.
type halfConn interface {
	io.ReadWriteCloser
}

// copyBytes moves bytes with the large buffers that a WireGuard packet train fills.
func copyBytes(dst io.Writer, src io.Reader) (int64, error) { return forward.Copy(dst, src) }

// isBrokenPipe says that whoever read our output has gone.
func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
