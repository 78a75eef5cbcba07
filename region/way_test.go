//go:build linux

package region_test

import (
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/netio"
)

// way leads to a server, and can be cut.
type way struct {
	url *url.URL

	mu    sync.Mutex
	shut  bool
	conns map[net.Conn]struct{}
}

func newWay(t *testing.T, target string) *way {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{url: &url.URL{Scheme: "http", Host: l.Addr().String()}, conns: map[net.Conn]struct{}{}}
	var working sync.WaitGroup
	working.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			working.Go(func() { w.carry(conn, target) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.cut()
		working.Wait()
	})
	return w
}

func (w *way) carry(conn net.Conn, target string) {
	w.mu.Lock()
	shut := w.shut
	w.conns[conn] = struct{}{}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.conns, conn)
		conn.Close()
	}()
	if shut {
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		return // as at a server that has ended
	}
	netio.Pipe(conn, server)
}

// cut ends all connections, and those to come, until open.
func (w *way) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shut = true
	for conn := range w.conns {
		conn.Close()
	}
}

func (w *way) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shut = false
}
