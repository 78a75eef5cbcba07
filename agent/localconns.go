package agent

import (
	"errors"
	"fmt"
	"net"
	"sync"
)

// localConns is a listener for connections from this process.
type localConns struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newLocalConns() *localConns {
	return &localConns{accept: make(chan net.Conn), closed: make(chan struct{})}
}

// dial returns a connection that the listener accepts as one from addr.
func (l *localConns) dial(addr net.Addr) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.accept <- localConn{far, addr}:
		return near, nil
	case <-l.closed:
		return nil, errors.New("the workspace is stopping")
	}
}

func (l *localConns) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accept:
		return conn, nil
	case <-l.closed:
		return nil, fmt.Errorf("accept: %w", net.ErrClosed)
	}
}

func (l *localConns) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *localConns) Addr() net.Addr { return localAddr{} }

// localConn is a connection on behalf of a peer.
type localConn struct {
	net.Conn
	peer net.Addr
}

func (c localConn) RemoteAddr() net.Addr { return c.peer }

type localAddr struct{}

func (localAddr) Network() string { return "local" }
func (localAddr) String() string  { return "ssh" }
