// Package forward forwards local ports: it parses their specifications, listens, and carries connections and datagrams.
// It knows neither workspaces nor the mesh.
package forward

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/connset"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/netio"
)

// maxTCP bounds the connections of one forwarded port. Programs on this machine make them, or of its network: further
// ones are reset.
const maxTCP = 1024

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

// ServeTCP forwards connections until the listener is closed, and returns when all have ended. It keeps trying while
// the process has no file descriptors left. warn receives what fails.
func ServeTCP(ctx context.Context, l net.Listener, dial func() (net.Conn, error), warn func(error)) {
	conns := connset.New(connset.Options{Limit: maxTCP, Refused: func(conn net.Conn) { netio.Abort(conn) }})
	defer conns.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	pause := backoff.Backoff{Min: 5 * time.Millisecond, Max: time.Second}
	for {
		local, err := l.Accept()
		switch {
		case err == nil:
			pause.Reset()
			wg.Go(func() { conns.Do(local, func() { serveTCP(ctx, local, dial, warn) }) })
		case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE):
			if pause.Wait(ctx) != nil {
				return
			}
		default:
			// A listener in the workspace ends with io.EOF when the connection to it is closed.
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
				warn(err)
			}
			return
		}
	}
}

func serveTCP(ctx context.Context, local net.Conn, dial func() (net.Conn, error), warn func(error)) {
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
}
