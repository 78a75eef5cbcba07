package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/connlog"
	"github.com/codermesh/codermesh/v2/agent/forward"
	"github.com/codermesh/codermesh/v2/agent/logship"
	"github.com/codermesh/codermesh/v2/agent/metadata"
	"github.com/codermesh/codermesh/v2/agent/monitor"
	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/agent/speed"
	"github.com/codermesh/codermesh/v2/agent/terminal"
	"github.com/codermesh/codermesh/v2/agent/usage"
	"github.com/codermesh/codermesh/v2/internal/connset"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// newDaemon opens the agent's listeners. If it succeeds the daemon owns the mesh.
func newDaemon(opts Options, mesh Mesh) (*daemon, error) {
	d := &daemon{
		opts: opts, log: opts.Logger, mesh: mesh, user: proc.CurrentUser(),
		forwards: forward.New(forward.Options{Logger: opts.Logger}), logs: logship.New(), reports: newReports(),
		logins: newLoginGate(), asked: make(chan string, 1), renewed: notify.NewWake(), booted: make(chan struct{}),
	}
	d.connections = connlog.New(d.way, d.trips)
	d.viewers = d.connSet(maxTerminalConns, "too many viewers of terminals")
	d.speedtests = d.connSet(maxSpeedtests, "too many speed tests")
	d.regionConns = d.connSet(maxRegionConns, "too many connections of region proxies")
	var open []net.Listener
	for _, l := range []struct {
		port     uint16
		listener *net.Listener
	}{
		{meshport.Session, &d.sessionListener},
		{meshport.SSH, &d.sshListener},
		{meshport.Speedtest, &d.speedListener},
		{meshport.Terminal, &d.terminalListener},
		{meshport.AgentRPC, &d.apiListener},
		{meshport.Visit, &d.regionListener},
	} {
		listening, err := mesh.Listen(l.port)
		if err != nil {
			for _, o := range open {
				o.Close()
			}
			return nil, fmt.Errorf("listen on mesh port %d: %w", l.port, err)
		}
		*l.listener = listening
		open = append(open, listening)
	}
	d.sessionListener = listener{d.sessionListener, &d.stats, d.connections}
	d.sshClients, d.regionSSH = newLocalConns(), newLocalConns()
	d.metadata = metadata.New(d.log, d.runMetadata)
	d.monitors = monitor.New(d.log, opts.MonitorInterval, measurer(usage.New()))
	d.api = newAPI(api{mesh: mesh, metadata: d.metadata, devcontainer: func(id uuid.UUID) *devContainer {
		if w, _ := d.current(); w != nil {
			return w.devcontainer(id)
		}
		return nil
	}})
	if d.holder = opts.Terminals; d.holder == nil {
		d.holder = ownHolder{terminal.New(terminal.Options{Logger: opts.Logger})}
	}
	mesh.HandleTCP(d.stats.counted(d.connections, d.forwards.TCP))
	mesh.HandleUDP(d.stats.counted(d.connections, d.forwards.UDP))
	return d, nil
}

// run serves until the agent has shut down or the server has refused it.
func (d *daemon) run(ctx context.Context, restarts <-chan os.Signal) error {
	// Work outlives ctx, for an orderly shutdown.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	d.wg.Go(func() { d.talk(work) })
	d.wg.Go(func() { d.serve(d.speedtests, d.speedListener, d.speedtest) })
	d.wg.Go(func() { d.serve(d.viewers, d.terminalListener, d.serveTerminal) })
	d.wg.Go(func() { d.serve(d.regionConns, d.regionListener, d.serveRegion) })
	d.wg.Go(d.serveAPI)
	d.wg.Go(func() { d.reportStats(work) })
	starting, stopStarting := context.WithCancel(work)
	defer stopStarting()
	started := make(chan struct{})
	d.wg.Go(func() {
		defer close(started)
		d.start(starting)
	})

	var refused error
	awaitStart, listening := false, true
	select {
	case <-ctx.Done():
		d.log.Info("agent is asked to stop")
	case reason := <-d.asked:
		d.log.Info("agent is asked to stop", "reason", reason)
		awaitStart = d.opts.Stopped != nil
	case <-restarts:
		d.log.Info("agent is asked to restart")
		stopStarting()
		<-started
		cancel()
		return errors.Join(ErrRestart, d.close())
	case <-d.mesh.Done():
		refused = d.mesh.Err()
		d.log.Warn("agent was removed from the mesh", "err", refused)
		// The workspace may have stopped while this machine was offline: the server knows whether the agent can return.
		if code := fault.CodeOf(refused); d.opts.Stopped != nil &&
			(code == fault.Unauthenticated || code == fault.Forbidden) {
			d.opts.Stopped(d.offlineToken())
			refused, listening = nil, false
		}
	}
	stopStarting()
	<-started
	if awaitStart {
		listening = d.awaitStart(work) // first, because the build may end before the stop scripts do
	}
	if w, m := d.current(); w != nil {
		w.stop(work, m, listening && refused == nil)
	}
	cancel()
	err := d.close()
	if refused != nil {
		return refused
	}
	return err
}

// start runs the start scripts of each build whose manifest arrives, and then its dev containers, until ctx ends. A new
// build ends the scripts of the one before. start returns after the scripts have ended.
func (d *daemon) start(ctx context.Context) {
	var running sync.WaitGroup
	end := func() {}
	defer func() {
		end()
		running.Wait()
	}()
	var last *agentpb.ManifestResponse
	for {
		select {
		case <-d.renewed:
		case <-ctx.Done():
			return
		}
		w, m := d.current()
		if w == nil {
			continue // a manifest that could not be used
		}
		if last != nil && m.GetIncarnation() <= last.GetIncarnation() {
			continue
		}
		last = m
		end()
		running.Wait()
		build, cancel := context.WithCancel(ctx)
		end = cancel
		running.Go(func() {
			w.startBuild(build, m)
			w.runDevcontainers(build, m)
		})
	}
}

// reportStats reports the use of the workspace at each interval, if there is any, until ctx ends.
func (d *daemon) reportStats(ctx context.Context) {
	interval := d.opts.StatsInterval
	if interval <= 0 {
		interval = defaultStatsInterval
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	used := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		w, _ := d.current()
		if w == nil {
			continue
		}
		r := d.stats.request(w.ssh.Sessions(), d.connections)
		now := r.GetSsh()+r.GetVscode()+r.GetJetbrains()+r.GetReconnectingPty()+r.GetPortForward() > 0
		if d.stats.ever.Swap(false) || now || used {
			d.reports.add(report{stats: r})
		}
		used = now
	}
}

func (d *daemon) serveAPI() {
	if err := d.api.Serve(d.apiListener); err != nil && !errors.Is(err, http.ErrServerClosed) &&
		!errors.Is(err, net.ErrClosed) {
		d.log.Error("cannot serve the server's calls", "err", err)
	}
}

// awaitStart gets the token with which the workspace's next start admits this agent, unless the agent ends with the
// workspace. It reports whether the server has answered. One that cannot be asked, or says that the stop has ended, has
// removed this agent already, which slept meanwhile: the next start decides then.
func (d *daemon) awaitStart(ctx context.Context) (answered bool) {
	client, err := d.server.now()
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		var answer *connect.Response[agentpb.AwaitStartResponse]
		if answer, err = client.AwaitStart(ctx, connect.NewRequest(&agentpb.AwaitStartRequest{})); err == nil {
			d.opts.Stopped(secret.Token(answer.Msg.GetToken()))
			return true
		}
		if connect.IsWireError(err) && connect.CodeOf(err) != connect.CodeUnauthenticated { // the server's own answer
			d.log.Info("agent ends with the workspace", "reason", err)
			return true
		}
	}
	d.log.Info("agent cannot ask whether it ends with the workspace", "reason", err)
	d.opts.Stopped(d.offlineToken())
	return false
}

// offlineToken returns the token with which the next start admits this agent if it was offline at the stop. An agent
// that has returned keeps its own.
func (d *daemon) offlineToken() secret.Token {
	if d.opts.Returning {
		return d.opts.Token
	}
	return d.opts.Token.Offline()
}

// close hangs up sessions and ends everything else.
func (d *daemon) close() error {
	d.logins.close()
	err := errors.Join(d.sessionListener.Close(), d.sshListener.Close(), d.sshClients.Close(), d.regionSSH.Close(),
		d.speedListener.Close(), d.terminalListener.Close(), d.regionListener.Close(), d.api.Close(),
		d.speedtests.CloseAll())
	d.mu.Lock()
	if d.stopDuties != nil {
		d.stopDuties()
	}
	d.closing = true
	w := d.workspace
	d.mu.Unlock()
	// Terminals end first, so that their viewers learn the reason.
	err = errors.Join(err, d.holder.Close(), d.metadata.Close(), d.viewers.Close(), d.speedtests.Close(),
		d.regionConns.Close())
	if w != nil {
		err = errors.Join(err, w.close())
	}
	err = errors.Join(err, d.forwards.Close(), d.mesh.Close())
	d.connections.Close()
	d.wg.Wait()
	return err
}

// way returns how packets to a client travel, and the client's end of a direct path.
func (d *daemon) way(client netip.Addr) (agentpb.Path_Way, string) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // only the state is needed, no round trip
	for _, p := range d.mesh.Measure(ctx, func(id uuid.UUID) bool { return tailnet.Addr(id) == client }) {
		switch p.Path {
		case tailnet.PathDirect:
			return agentpb.Path_WAY_DIRECT, p.Endpoint.String()
		case tailnet.PathRelay:
			return agentpb.Path_WAY_RELAY, ""
		}
	}
	return agentpb.Path_WAY_UNSPECIFIED, ""
}

// trips measures the round trips to clients.
func (d *daemon) trips(ctx context.Context, clients map[netip.Addr]bool) map[netip.Addr]time.Duration {
	out := map[netip.Addr]time.Duration{}
	for _, p := range d.mesh.Measure(ctx, func(id uuid.UUID) bool { return clients[tailnet.Addr(id)] }) {
		if p.Latency > 0 {
			out[tailnet.Addr(p.ID)] = p.Latency
		}
	}
	return out
}

// connSet returns a new set for the connections of one service of the agent.
func (d *daemon) connSet(limit int, tooMany string) *connset.Set {
	return connset.New(connset.Options{Limit: limit,
		Refused: func(conn net.Conn) { d.log.Warn(tooMany, "peer", conn.RemoteAddr()) }})
}

func (d *daemon) serve(conns *connset.Set, l net.Listener, handle func(net.Conn)) {
	if err := conns.Serve(l, handle); err != nil {
		d.log.Error("cannot accept connections", "addr", l.Addr(), "err", err)
	}
}

func (d *daemon) speedtest(conn net.Conn) {
	if err := speed.Serve(conn); err != nil {
		d.log.Debug("speed test failed", "peer", conn.RemoteAddr(), "err", err)
	}
}
