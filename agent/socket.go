package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/codermesh/codermesh/agent/socket"
	"github.com/codermesh/codermesh/internal/scratch"
)

// maxSocketConns bounds how many programs talk to one of the agent's private sockets at once.
const maxSocketConns = 32

// privateSocket is a socket in a folder of its own, which only the workspace's account can enter.
type privateSocket struct {
	dir    string
	temp   *scratch.Folder // dir, where it is a temporary one; or nil
	server *socket.Server
}

// newPrivateSocket listens in a folder that it makes anew, or in a temporary one (""), which the next agent does not reuse. handle
// serves one connection, which is closed when it returns; it ends when the connection does.
func newPrivateSocket(dir string, handle func(net.Conn)) (*privateSocket, error) {
	s := &privateSocket{dir: dir}
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
	l, err := net.Listen("unix", s.path())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on a socket: %w", err), s.removeFolder())
	}
	s.server = socket.Serve(l, maxSocketConns, handle)
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

// close ends the socket and all connections to it.
func (s *privateSocket) close() error { return errors.Join(s.server.Close(), s.removeFolder()) }

func (s *privateSocket) removeFolder() error {
	if s.temp != nil {
		return s.temp.Close()
	}
	return os.RemoveAll(s.dir)
}
