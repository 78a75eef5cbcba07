package keeper

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// Child is the agent's side of the keeper. It implements agent.Terminals with shells that outlive this process.
type Child struct {
	token secret.Token
	conn  *net.UnixConn
	lost  chan struct{}
	wait  sync.WaitGroup
}

// Attach connects to the keeper. The agent's process calls it once, early.
func Attach() (*Child, error) {
	if err := proc.Protect(); err != nil {
		return nil, err
	}
	unix.CloseOnExec(socketFD)
	file := os.NewFile(socketFD, "keeper")
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return nil, fmt.Errorf("reach keeper: %w", err)
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, errors.New("reach keeper: descriptor 3 is something else")
	}
	buf := make([]byte, 4096)
	n, err := socket.Read(buf)
	if err != nil {
		socket.Close()
		return nil, fmt.Errorf("receive token: %w", err)
	}
	c := &Child{token: secret.Token(buf[:n]), conn: socket, lost: make(chan struct{})}
	c.wait.Go(func() {
		defer close(c.lost)
		_, _ = socket.Read(make([]byte, 1)) // the keeper sends nothing more; the read ends when either process does
	})
	return c, nil
}

// Token returns the agent's token.
func (c *Child) Token() secret.Token { return c.token }

// SetToken gives the keeper the token of the next agent. Call it before Close.
func (c *Child) SetToken(token secret.Token) error {
	if _, err := c.conn.Write([]byte(token.Reveal())); err != nil {
		return fmt.Errorf("pass token to keeper: %w", err)
	}
	return nil
}

// Lost is closed when the keeper is gone, or after Close.
func (c *Child) Lost() <-chan struct{} { return c.lost }

// Dial opens a connection to the keeper's terminals.
func (c *Child) Dial() (net.Conn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "terminal"), os.NewFile(uintptr(pair[1]), "terminal")
	defer ours.Close()
	defer theirs.Close()
	if _, _, err := c.conn.WriteMsgUnix([]byte{1}, unix.UnixRights(int(theirs.Fd())), nil); err != nil {
		return nil, fmt.Errorf("pass connection to keeper: %w", err)
	}
	return net.FileConn(ours)
}

// Close disconnects from the keeper, which keeps the terminals.
func (c *Child) Close() error {
	err := c.conn.Close()
	c.wait.Wait()
	return err
}
