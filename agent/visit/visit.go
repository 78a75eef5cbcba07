// Package visit cuts the connections of visitors at region proxies when what the servers allowed has expired.
package visit

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/netio"
)

// visit is a visitor's use of a port, a terminal or SSH through a region proxy. It ends when its newest visa has
// expired.
type visit struct {
	until time.Time
	end   *time.Timer
	conns map[net.Conn]struct{}
}

// Set has the visits that are open. Its zero value is empty. A proxy's node chooses nothing about them: its address is
// part of the key.
type Set struct {
	mu   sync.Mutex // guards open, and the visits
	open map[ID]*visit
}

// ID identifies a visit.
type ID struct {
	Proxy netip.Addr
	Visit uuid.UUID
	Port  uint16 // TCP; 0 for a terminal, SSH or UDP
}

// Enter adds a connection to a visit, which is cut when the visit ends. leave removes it.
func (r *Set) Enter(id ID, conn net.Conn, until time.Time) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.open[id]
	if x == nil {
		if r.open == nil {
			r.open = map[ID]*visit{}
		}
		x = &visit{conns: map[net.Conn]struct{}{}}
		r.open[id] = x
	}
	x.conns[conn] = struct{}{}
	r.prolong(id, x, until)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(x.conns, conn)
		if len(x.conns) == 0 && r.open[id] == x {
			x.end.Stop()
			delete(r.open, id)
		}
	}
}

// Renew makes an open visit last until a time, if it would end before.
func (r *Set) Renew(id ID, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x := r.open[id]; x != nil {
		r.prolong(id, x, until)
	}
}

// prolong makes a visit last until a time, if it would end before. Called with mu held.
func (r *Set) prolong(id ID, x *visit, until time.Time) {
	if !until.After(x.until) {
		return
	}
	x.until = until
	if x.end != nil {
		x.end.Stop()
	}
	x.end = time.AfterFunc(time.Until(until), func() { r.expire(id, x, until) })
}

func (r *Set) expire(id ID, x *visit, until time.Time) {
	r.mu.Lock()
	if !x.until.Equal(until) || r.open[id] != x {
		r.mu.Unlock()
		return // it was prolonged just now, or has ended
	}
	delete(r.open, id)
	conns := x.conns
	x.conns = nil
	r.mu.Unlock()
	for conn := range conns {
		netio.Abort(conn)
	}
}
