package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/netio"
	"github.com/codermesh/codermesh/internal/sdk"
)

const (
	udpIdle     = 2 * time.Minute
	maxUDPFlows = 256
	maxDatagram = 64 << 10
)

func (a *app) portForwardCmd() *cobra.Command {
	var tcp, udp []string
	var noAutostart bool
	cmd := &cobra.Command{
		Use:   "port-forward WORKSPACE",
		Short: "Forward workspace ports to this machine",
		Long: `Make ports of a workspace reachable on this machine until interrupted. A forward is [address:]local[:remote], where local and
remote are ports or ranges of the same length; several are separated by commas. The address is 127.0.0.1 unless given.

When the workspace is stopped the local ports stay: connections are refused until it runs again.`,
		Example: `  coder port-forward dev --tcp 8080
  coder port-forward dev --tcp 8080:80,9000-9005 --udp 5353:53
  coder port-forward dev --tcp 0.0.0.0:8080:80`,
		Args: argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := parseWorkspaceName(args[0])
			if err != nil {
				return err
			}
			forwards, err := parseForwards(tcp, udp)
			if err != nil {
				return Try(err, "coder port-forward %s --tcp 8080:80", args[0])
			}
			return a.portForward(cmd.Context(), name, forwards, !noAutostart)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&tcp, "tcp", "p", nil, "forward TCP; may be repeated")
	f.StringArrayVar(&udp, "udp", nil, "forward UDP; may be repeated")
	f.BoolVar(&noAutostart, "disable-autostart", false, "do not start a stopped workspace")
	return cmd
}

// portForward serves until ctx ends, the workspace is deleted or the session is over. Its listeners outlive a stop of the workspace.
func (a *app) portForward(ctx context.Context, name workspaceName, forwards []portForward, autostart bool) error {
	listeners, err := listenAll(ctx, forwards)
	if err != nil {
		return err
	}
	defer closeAll(listeners)
	t, err := a.reach(ctx, reachOptions{name: name, autostart: autostart, reason: sdk.ReasonCLI})
	if err != nil {
		return err
	}
	defer t.mesh.Close()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lane := newLane(t)
	var wg sync.WaitGroup
	for i, f := range forwards {
		fmt.Fprintf(a.streams().Err, "Forwarding %s %s to port %d of %s\n", f.network, f.local, f.remote, fullName(t.workspace))
		dial := func() (net.Conn, error) { return lane.dial(ctx, f.network, f.remote) }
		warn := func(err error) { fmt.Fprintf(a.streams().Err, "port %d of the workspace: %v\n", f.remote, err) }
		switch l := listeners[i].(type) {
		case net.Listener:
			wg.Go(func() { serveTCP(ctx, l, dial, warn) })
		case net.PacketConn:
			wg.Go(func() { serveUDP(ctx, l, dial, warn) })
		}
	}
	wg.Go(func() { cancel(a.keepLane(ctx, lane, name)) })
	wg.Go(func() { reportUsage(ctx, t, "reconnecting-pty") })
	<-ctx.Done()
	closeAll(listeners)
	lane.lose()
	t.mesh.Close() // ends the connections that are being carried
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return ctx.Err()
}

// listenAll opens every local port, or none.
func listenAll(ctx context.Context, forwards []portForward) ([]io.Closer, error) {
	var listeners []io.Closer
	var config net.ListenConfig
	for _, f := range forwards {
		var l io.Closer
		var err error
		if f.network == "tcp" {
			l, err = config.Listen(ctx, "tcp", f.local.String())
		} else {
			l, err = config.ListenPacket(ctx, "udp", f.local.String())
		}
		if err != nil {
			closeAll(listeners)
			return nil, Try(fault.New(fault.Conflict, "the local port %s cannot be opened: %w", f.local, err),
				"coder port-forward … --%s %d:%d", f.network, int(f.local.Port())%50000+10000, f.remote)
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

func closeAll(closers []io.Closer) {
	for _, c := range closers {
		c.Close()
	}
}

// serveTCP carries connections until the listener is closed, and returns when all have ended.
func serveTCP(ctx context.Context, l net.Listener, dial func() (net.Conn, error), warn func(error)) {
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

// serveUDP carries datagrams until the socket is closed: one flow per local sender, ended after udpIdle of silence.
func serveUDP(ctx context.Context, socket net.PacketConn, dial func() (net.Conn, error), warn func(error)) {
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
		_, _ = flow.conn.Write(buf[:n]) // a lost datagram is UDP's way
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

// answer carries datagrams back to the sender until the flow is closed.
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

// reportUsage tells the server that the workspace is in use, now and then, until ctx ends.
func reportUsage(ctx context.Context, t *target, appName string) {
	timer := time.NewTimer(usageFirst)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		// It keeps the workspace from being stopped as unused; one lost report of many does no harm.
		_ = t.client.WorkspaceUsage(ctx, t.workspace.ID, sdk.UsageRequest{AgentID: t.agent.ID, AppName: appName})
		timer.Reset(usageEvery)
	}
}

const (
	usageFirst = 5 * time.Second
	usageEvery = time.Minute
)
