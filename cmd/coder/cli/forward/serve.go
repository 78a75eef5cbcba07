// Package forward forwards local ports: it parses their specifications, listens, and carries connections and datagrams.
// It knows neither workspaces nor the mesh.
package forward

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/codermesh/codermesh/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/netio"
)

const (
	udpIdle     = 2 * time.Minute
	maxUDPFlows = 256
	maxDatagram = 64 << 10
)

// Listen opens all local ports, or none.
func Listen(ctx context.Context, forwards []Port) ([]io.Closer, error) {
	var listeners []io.Closer
	var config net.ListenConfig
	for _, f := range forwards {
		var l io.Closer
		var err error
		if f.Network == "tcp" {
			l, err = config.Listen(ctx, "tcp", f.Local.String())
		} else {
			l, err = config.ListenPacket(ctx, "udp", f.Local.String())
		}
		if err != nil {
			Close(listeners)
			return nil, exit.Try(fault.New(fault.Conflict, "cannot listen on %s: %w", f.Local, err),
				"coder port-forward … --%s %d:%d", f.Network, int(f.Local.Port())%50000+10000, f.Remote)
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

func Close(closers []io.Closer) {
	for _, c := range closers {
		c.Close()
	}
}

// ServeTCP forwards connections until the listener is closed, and returns when all have ended. warn receives what fails.
func ServeTCP(ctx context.Context, l net.Listener, dial func() (net.Conn, error), warn func(error)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		local, err := l.Accept()
		if err != nil {
			// A listener in the workspace ends with io.EOF when the connection to it is closed.
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
				warn(err)
			}
			return
		}
		wg.Go(func() {
			defer local.Close()
			defer context.AfterFunc(ctx, func() { local.Close() })()
			remote, err := dial()
			if err != nil {
				if ctx.Err() == nil {
					warn(err)
				}
				netio.Abort(local)
				return
			}
			defer context.AfterFunc(ctx, func() { remote.Close() })()
			netio.Pipe(local, remote)
		})
	}
}

// ServeUDP forwards datagrams until the socket is closed, with one flow per local sender that ends after udpIdle of silence.
func ServeUDP(ctx context.Context, socket net.PacketConn, dial func() (net.Conn, error), warn func(error)) {
	flows := udpFlows{open: map[string]*udpFlow{}}
	defer flows.wg.Wait()
	defer flows.closeAll()
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := socket.ReadFrom(buf)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				warn(err)
			}
			return
		}
		flow := flows.get(from.String())
		if flow == nil {
			conn, err := dial()
			if err != nil {
				if ctx.Err() == nil {
					warn(err)
				}
				continue
			}
			if flow = flows.add(from.String(), conn); flow == nil {
				conn.Close() // too many at once: UDP may lose datagrams
				continue
			}
			flows.wg.Go(func() { flows.answer(flow, socket, from) })
		}
		flow.touch()
		_, _ = flow.conn.Write(buf[:n]) // UDP may lose datagrams
	}
}

type udpFlow struct {
	key  string
	conn net.Conn
	idle *time.Timer
}

func (f *udpFlow) touch() { f.idle.Reset(udpIdle) }

type udpFlows struct {
	mu   sync.Mutex // guards open
	open map[string]*udpFlow
	wg   sync.WaitGroup
}

func (u *udpFlows) get(key string) *udpFlow {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.open[key]
}

func (u *udpFlows) add(key string, conn net.Conn) *udpFlow {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.open) >= maxUDPFlows {
		return nil
	}
	f := &udpFlow{key: key, conn: conn, idle: time.AfterFunc(udpIdle, func() { conn.Close() })}
	u.open[key] = f
	return f
}

func (u *udpFlows) closeAll() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range u.open {
		f.conn.Close()
	}
}

// answer carries datagrams back to their sender until the flow is closed.
func (u *udpFlows) answer(f *udpFlow, socket net.PacketConn, to net.Addr) {
	buf := make([]byte, maxDatagram)
	for {
		n, err := f.conn.Read(buf)
		if err != nil {
			break
		}
		f.touch()
		if _, err := socket.WriteTo(buf[:n], to); err != nil {
			break
		}
	}
	f.idle.Stop()
	f.conn.Close()
	u.mu.Lock()
	delete(u.open, f.key)
	u.mu.Unlock()
}
