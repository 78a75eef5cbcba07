package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/codermesh/codermesh/v2/internal/connset"
	"github.com/codermesh/codermesh/v2/internal/scratch"
)

const (
	socketName = "agent.sock"
	// maxSocketPath is the longest path that fits into a Unix socket's address (sun_path, 108 bytes with the final NUL
	// on Linux).
	maxSocketPath = 107
)

// privateSocket is a Unix socket in a folder of its own, which only the workspace's account can enter.
type privateSocket struct {
	path  string
	temp  *scratch.Folder // the socket's folder if it is temporary, else nil
	conns *connset.Set
	wg    sync.WaitGroup
}

// newPrivateSocket makes dir, replacing one that a killed agent left, and listens in it. The next agent of a workspace
// uses the same dir, because shells outlive an agent and keep their variables. If dir cannot be made, or its path is
// too long, the socket is in a temporary folder. handle serves one connection, at most limit at once; the connection is
// closed after handle returns, and handle must return when the connection is closed.
func newPrivateSocket(dir string, limit int, log *slog.Logger, handle func(net.Conn)) (*privateSocket, error) {
	s := &privateSocket{path: filepath.Join(dir, socketName), conns: connset.New(connset.Options{Limit: limit})}
	if len(s.path) > maxSocketPath || os.RemoveAll(dir) != nil || os.MkdirAll(dir, 0o700) != nil {
		var err error
		if s.temp, err = socketFolder(dir); err != nil {
			return nil, fmt.Errorf("create folder for socket: %w", err)
		}
		s.path = filepath.Join(s.temp.Path(), socketName)
	}
	l, err := listenPrivate(s.path)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.wg.Go(func() {
		if err := s.conns.Serve(l, handle); err != nil {
			log.Error("private socket ended", "path", s.path, "err", err)
		}
	})
	return s, nil
}

func listenPrivate(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("open socket: %w", err), l.Close())
	}
	return l, nil
}

// socketFolder claims a temporary folder for a socket that cannot be in dir. The next agent claims the same one for
// this dir, unless another process or account has a folder of that name.
func socketFolder(dir string) (*scratch.Folder, error) {
	sum := sha256.Sum256([]byte(dir))
	temp, err := scratch.Take(filepath.Join(os.TempDir(), "coder-agent-"+hex.EncodeToString(sum[:8])))
	if errors.Is(err, scratch.ErrTaken) {
		return scratch.Make("coder-agent-")
	}
	return temp, err
}

// close closes the socket and all connections to it, waits for their handlers, and removes the folder. It does nothing
// for a nil socket.
func (s *privateSocket) close() error {
	if s == nil {
		return nil
	}
	err := s.conns.Close()
	s.wg.Wait()
	if s.temp != nil {
		return errors.Join(err, s.temp.Close())
	}
	return errors.Join(err, os.RemoveAll(filepath.Dir(s.path)))
}
