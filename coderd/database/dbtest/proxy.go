//go:build unix

package dbtest

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Proxy is a TCP proxy in front of a test's PostgreSQL, with which a test makes the way to the database bad. Safe for
// concurrent use.
type Proxy struct {
	// URL is the database's, through the proxy.
	URL string

	socket   string
	listener net.Listener
	done     sync.WaitGroup

	mu     sync.Mutex
	flows  sync.Cond // signaled when held or closed changes
	held   bool      // guarded by mu: no byte passes
	cut    bool      // guarded by mu: new connections end at once
	closed bool      // guarded by mu
	open   map[net.Conn]struct{}
}

// NewProxy returns a proxy in front of the database at a URL of this package. It ends with the test.
func NewProxy(t testing.TB, database string) *Proxy {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{socket: u.Query().Get("host") + "/.s.PGSQL.5432", listener: listener, open: map[net.Conn]struct{}{}}
	p.flows.L = &p.mu
	u.Host, u.RawQuery = listener.Addr().String(), "sslmode=disable"
	p.URL = u.String()
	p.done.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Hold stops all bytes in both directions. Connections stay open, and new ones are accepted.
func (p *Proxy) Hold() { p.set(func() { p.held = true }) }

// Release lets them flow again.
func (p *Proxy) Release() { p.set(func() { p.held, p.cut = false, false }) }

// Cut ends all connections, and new ones until Release.
func (p *Proxy) Cut() { p.set(func() { p.cut = true; p.drop() }) }

// Drop ends all connections. New ones work.
func (p *Proxy) Drop() { p.set(p.drop) }

func (p *Proxy) close() {
	p.listener.Close()
	p.set(func() { p.closed = true; p.drop() })
	p.done.Wait()
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.flows.Broadcast()
}

// drop must be called with p.mu held.
func (p *Proxy) drop() {
	for conn := range p.open {
		conn.Close()
	}
	clear(p.open)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", p.socket)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		if p.cut || p.closed {
			client.Close()
			server.Close()
		} else {
			p.open[client], p.open[server] = struct{}{}, struct{}{}
		}
		p.mu.Unlock()
		p.done.Go(func() { p.copy(server, client) })
		p.done.Go(func() { p.copy(client, server) })
	}
}

// copy forwards bytes while they may flow, until either end closes.
func (p *Proxy) copy(to io.WriteCloser, from io.ReadCloser) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		for p.held && !p.closed {
			p.flows.Wait()
		}
		p.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
