package sshd

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	gossh "golang.org/x/crypto/ssh"
)

// agentForward is a socket in the workspace behind which the client's SSH agent answers. Only the workspace's account can
// reach it: its folder is private.
type agentForward struct {
	path     string
	dir      string
	listener net.Listener
	once     sync.Once
}

func newAgentForward(c *conn, peer *gossh.ServerConn) (*agentForward, error) {
	dir, err := os.MkdirTemp("", "ssh-") // mode 0700
	if err != nil {
		return nil, fmt.Errorf("create agent folder: %w", err)
	}
	a := &agentForward{dir: dir, path: filepath.Join(dir, "agent.sock")}
	a.listener, err = net.Listen("unix", a.path)
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("listen for agent: %w", err)
	}
	ok := c.begin(func() {
		c.acceptForwarded(a.listener, func(local net.Conn) { c.open(peer, "auth-agent@openssh.com", nil, local) })
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
		os.RemoveAll(a.dir)
	})
}
