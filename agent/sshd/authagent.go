package sshd

import (
	"fmt"
	"net"
	"path/filepath"

	"github.com/codermesh/codermesh/v2/internal/scratch"
)

// agentForward is a socket in the workspace that leads to the client's SSH agent. Its folder is private, so only the
// workspace's account can reach it. As with OpenSSH's server, the sessions of a connection share it, and it lives as
// long as the connection: a program that outlives its session, such as tmux, keeps it.
type agentForward struct {
	path     string
	dir      *scratch.Folder
	listener net.Listener
}

// forwardAgent returns the path of the connection's socket, which it makes at the first call.
func (c *conn) forwardAgent() (string, error) {
	c.agent.Lock()
	defer c.agent.Unlock()
	if c.agent.forward == nil {
		forward, err := newAgentForward(c)
		if err != nil {
			return "", err
		}
		c.agent.forward = forward
	}
	return c.agent.forward.path, nil
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
	a.listener.Close()
	a.dir.Close()
}
