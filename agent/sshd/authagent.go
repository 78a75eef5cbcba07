package sshd

import (
	"fmt"
	"net"
	"path/filepath"
	"sync"

	"github.com/codermesh/codermesh/internal/scratch"
)

// agentForward is a socket in the workspace that leads to the client's SSH agent. Its folder is private, so only the workspace's account can
// reach it.
type agentForward struct {
	path     string
	dir      *scratch.Folder
	listener net.Listener
	once     sync.Once
}

func newAgentForward(c *conn) (*agentForward, error) {
	dir, err := scratch.Make("ssh-")
	if err != nil {
		return nil, err
	}
	a := &agentForward{dir: dir, path: filepath.Join(dir.Path(), "agent.sock")}
	a.listener, err = net.Listen("unix", a.path)
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("listen for agent: %w", err)
	}
	ok := c.begin(func() {
		c.acceptForwarded(a.listener, func(local net.Conn) { c.open("auth-agent@openssh.com", nil, local) })
	})
	if !ok {
		a.close()
		return nil, net.ErrClosed
	}
	return a, nil
}

func (a *agentForward) close() {
	a.once.Do(func() {
		a.listener.Close()
		a.dir.Close()
	})
}
