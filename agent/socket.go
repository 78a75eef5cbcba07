package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/codermesh/codermesh/internal/scratch"
)

// maxSocketConns bounds how many programs talk to one of the agent's private sockets at once.
const maxSocketConns = 32

// privateSocket is a socket in a folder of its own, which only the workspace's account can enter.
type privateSocket struct {
	handle   func(net.Conn)
	dir      string
	temp     *scratch.Folder // dir, where it is a temporary one; or nil
	listener net.Listener
	slots    chan struct{}

	mu     sync.Mutex // guards conns and closed
	conns  map[net.Conn]bool
	closed bool
	wg     sync.WaitGroup
}

// newPrivateSocket listens in a folder that it makes anew, or in a temporary one (""), which the next agent does not reuse. handle
// serves one connection, which is closed when it returns; it ends when the connection does.
func newPrivateSocket(dir string, handle func(net.Conn)) (*privateSocket, error) {
	s := &privateSocket{handle: handle, dir: dir, slots: make(chan struct{}, maxSocketConns), conns: map[net.Conn]bool{}}
	var err error
	if dir == "" {
		if s.temp, err = scratch.Make("coder-git-"); err == nil {
			s.dir = s.temp.Path()
		}
	} else if err = os.RemoveAll(dir); err == nil { // a killed agent left it
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("create folder for a socket: %w", err)
	}
	if s.listener, err = net.Listen("unix", s.path()); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on a socket: %w", err), s.removeFolder())
	}
	s.wg.Go(s.serve)
	return s, nil
}

const socketName = "agent.sock"

func (s *privateSocket) path() string { return filepath.Join(s.dir, socketName) }

// socketDir is a folder for a socket that the next agent of this workspace has, too: shells outlive an agent, with the variables that
// they began with. It is empty where there is no such place.
func (d *daemon) socketDir(name string) string {
	dir := filepath.Join(d.state.dir, name)
	if !d.state.writable || len(filepath.Join(dir, socketName)) > maxSocketPath {
		return ""
	}
	return dir
}

func (s *privateSocket) serve() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		select {
		case s.slots <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		if !s.begin(conn) {
			conn.Close()
			return
		}
		s.wg.Go(func() {
			defer func() { <-s.slots }()
			defer s.end(conn)
			s.handle(conn)
		})
	}
}

func (s *privateSocket) begin(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.conns[conn] = true
	}
	return !s.closed
}

func (s *privateSocket) end(conn net.Conn) {
	conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// close ends the socket and everybody's connection to it.
func (s *privateSocket) close() error {
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	err := s.listener.Close()
	s.wg.Wait()
	return errors.Join(err, s.removeFolder())
}

func (s *privateSocket) removeFolder() error {
	if s.temp != nil {
		return s.temp.Close()
	}
	return os.RemoveAll(s.dir)
}
