package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
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
)

const maxSpeedtests = 4 // at once

// daemon is a running agent.
type daemon struct {
	opts Options
	log  *slog.Logger
	mesh Mesh
	user proc.User

	forwards *forward.Forwarder
	logs     *logship.Queue
	reports  *reports
	visits   *visits

	sessionListener, sshListener, speedListener, terminalListener, regionListener, apiListener net.Listener
	// sshClients are stock SSH clients and visitors at regions, as the sessions see them. regionSSH are visitors of the SSH port.
	sshClients, regionSSH *localConns

	api      *http.Server
	holder   Terminals
	metadata *metadata.Collector
	monitors *monitor.Watcher
	stats    stats
	logins   *loginGate

	asked   chan string   // the server's reason when it asks the agent to stop
	renewed notify.Wake   // there is a manifest, perhaps of another build
	booted  chan struct{} // closed once there is a workspace

	viewers    *connset.Set // of terminals
	speedtests *connset.Set

	regionConns  *connset.Set // of region proxies
	regionVisits regionVisits

	mu         sync.Mutex // guards the fields below
	workspace  *workspace // nil until the first whole manifest
	manifest   *agentpb.ManifestResponse
	stopDuties context.CancelFunc // stops the checks and schedules of that manifest
	closing    bool
	client     agentpbconnect.AgentServiceClient // nil while there is no connection

	devcontainers map[uuid.UUID]*devContainer // of the last build whose start scripts have ended

	wg sync.WaitGroup
}

// newDaemon opens the agent's listeners. If it succeeds the daemon owns the mesh.
func newDaemon(opts Options, mesh Mesh) (*daemon, error) {
	d := &daemon{
		opts: opts, log: opts.Logger, mesh: mesh, user: proc.CurrentUser(),
		forwards: forward.New(forward.Options{Logger: opts.Logger}), logs: logship.New(), reports: newReports(),
		logins: newLoginGate(), asked: make(chan string, 1), renewed: notify.NewWake(), booted: make(chan struct{}),
	}
	d.visits = newVisits(d.way)
	d.viewers = d.connections(maxTerminalConns, "too many viewers of terminals")
	d.speedtests = d.connections(maxSpeedtests, "too many speed tests")
	d.regionConns = d.connections(maxRegionConns, "too many connections of region proxies")
	var open []net.Listener
	for _, l := range []struct {
		port     uint16
		listener *net.Listener
	}{{meshport.Session, &d.sessionListener}, {meshport.SSH, &d.sshListener}, {meshport.Speedtest, &d.speedListener}, {meshport.Terminal, &d.terminalListener}, {meshport.AgentRPC, &d.apiListener}, {meshport.Visit, &d.regionListener}} {
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
	d.sessionListener = listener{d.sessionListener, &d.stats, d.visits}
	d.sshClients, d.regionSSH = newLocalConns(), newLocalConns()
	d.metadata = metadata.New(d.log, d.runMetadata)
	d.monitors = monitor.New(d.log, opts.MonitorInterval, measurer(usage.New()))
	d.api = d.newAPI()
	if d.holder = opts.Terminals; d.holder == nil {
		d.holder = ownHolder{terminal.New(terminal.Options{Logger: opts.Logger})}
	}
	mesh.HandleTCP(d.stats.counted(d.visits, d.forwards.TCP))
	mesh.HandleUDP(d.stats.counted(d.visits, d.forwards.UDP))
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
		if code := fault.CodeOf(refused); d.opts.Stopped != nil && (code == fault.Unauthenticated || code == fault.Forbidden) {
			d.opts.Stopped(d.offlineToken())
			refused, listening = nil, false
		}
	}
	stopStarting()
	<-started
	if awaitStart {
		listening = d.awaitStart(work) // first, because the build may end before the stop scripts do
	}
	d.stop(work, listening && refused == nil)
	cancel()
	err := d.close()
	if refused != nil {
		return refused
	}
	return err
}

// awaitStart gets the token with which the workspace's next start admits this agent, unless the agent ends with the workspace. It reports whether the
// server has answered. One that cannot be asked, or says that the stop has ended, has removed this agent already, which slept meanwhile: the next start
// decides then.
func (d *daemon) awaitStart(ctx context.Context) (answered bool) {
	d.mu.Lock()
	client := d.client
	d.mu.Unlock()
	err := errors.New("no connection with the server")
	if client != nil {
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

// offlineToken returns the token with which the next start admits this agent if it was offline at the stop. An agent that has returned keeps its own.
func (d *daemon) offlineToken() secret.Token {
	if d.opts.Returning {
		return d.opts.Token
	}
	return d.opts.Token.Offline()
}

// close hangs up sessions and ends everything else.
func (d *daemon) close() error {
	d.logins.close()
	err := errors.Join(d.sessionListener.Close(), d.sshListener.Close(), d.sshClients.Close(), d.regionSSH.Close(), d.speedListener.Close(), d.terminalListener.Close(), d.regionListener.Close(), d.api.Close(), d.speedtests.CloseAll())
	d.mu.Lock()
	if d.stopDuties != nil {
		d.stopDuties()
	}
	d.closing = true
	w := d.workspace
	d.mu.Unlock()
	// Terminals end first, so that their viewers learn the reason.
	err = errors.Join(err, d.holder.Close(), d.metadata.Close(), d.viewers.Close(), d.speedtests.Close(), d.regionConns.Close())
	if w != nil {
		err = errors.Join(err, w.close())
	}
	err = errors.Join(err, d.forwards.Close(), d.mesh.Close())
	d.visits.close()
	d.wg.Wait()
	return err
}

// current returns the workspace, nil until the first whole manifest, and its latest manifest.
func (d *daemon) current() (*workspace, *agentpb.ManifestResponse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.workspace, d.manifest
}

// connections returns a new set for the connections of one service of the agent.
func (d *daemon) connections(limit int, tooMany string) *connset.Set {
	return connset.New(connset.Options{Limit: limit, Refused: func(conn net.Conn) { d.log.Warn(tooMany, "peer", conn.RemoteAddr()) }})
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
