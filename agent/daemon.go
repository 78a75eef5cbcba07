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

	"github.com/codermesh/codermesh/agent/agentpb"
	"github.com/codermesh/codermesh/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/agent/forward"
	"github.com/codermesh/codermesh/agent/logship"
	"github.com/codermesh/codermesh/agent/metadata"
	"github.com/codermesh/codermesh/agent/proc"
	"github.com/codermesh/codermesh/agent/script"
	"github.com/codermesh/codermesh/agent/speed"
	"github.com/codermesh/codermesh/agent/sshd"
	"github.com/codermesh/codermesh/agent/terminal"
	"github.com/codermesh/codermesh/agent/units"
	"github.com/codermesh/codermesh/internal/meshport"
	"github.com/codermesh/codermesh/internal/notify"
	"github.com/codermesh/codermesh/internal/scratch"
)

const maxSpeedtests = 4 // at once

// daemon is a running agent.
type daemon struct {
	opt  Options
	log  *slog.Logger
	mesh Mesh
	user proc.User

	forwards *forward.Forwarder
	logs     *logship.Queue
	reports  *reports

	sessionListener, speedListener, terminalListener, apiListener net.Listener

	api      *http.Server
	holder   Terminals
	metadata *metadata.Collector
	stats    stats

	asked   chan string   // receives when the server asks the agent to end
	renewed notify.Wake   // there is a manifest, perhaps of another build
	ready   chan struct{} // closed once the fields below are set
	state   *state
	scripts *script.Runner
	ssh     *sshd.Server
	units   *units.Graph
	// socket is where scripts ask, "" when it could not be opened; unitServer answers there.
	socket     string
	socketTemp *scratch.Folder // the socket's folder where the state folder's path is too long, or nil
	unitServer *units.Server

	git        *gitAgent      // nil where it cannot listen
	logins     *privateSocket // the same
	stopLogins context.CancelFunc

	mu         sync.Mutex // guards the fields below
	manifest   *agentpb.ManifestResponse
	stopDuties context.CancelFunc // checks and schedules of that manifest
	closing    bool
	viewers    map[net.Conn]struct{}             // of terminals
	client     agentpbconnect.AgentServiceClient // nil while there is no connection

	speedtests chan struct{} // a slot per running test
	wg         sync.WaitGroup
}

// newDaemon begins to listen. The mesh is the daemon's once it returns without an error.
func newDaemon(opt Options, mesh Mesh) (*daemon, error) {
	d := &daemon{
		opt: opt, log: opt.Logger, mesh: mesh, user: proc.CurrentUser(),
		forwards: forward.New(forward.Options{Logger: opt.Logger}), logs: logship.New(), reports: newReports(),
		asked: make(chan string, 1), renewed: notify.NewWake(), ready: make(chan struct{}), speedtests: make(chan struct{}, maxSpeedtests),
		viewers: make(map[net.Conn]struct{}),
	}
	var open []net.Listener
	for _, l := range []struct {
		port     uint16
		listener *net.Listener
	}{{meshport.Session, &d.sessionListener}, {meshport.Speedtest, &d.speedListener}, {meshport.Terminal, &d.terminalListener}, {meshport.AgentRPC, &d.apiListener}} {
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
	d.sessionListener = listener{d.sessionListener, &d.stats}
	d.metadata = metadata.New(d.log, d.runMetadata)
	d.api = d.newAPI()
	if d.holder = opt.Terminals; d.holder == nil {
		d.holder = ownHolder{terminal.New(terminal.Options{Logger: opt.Logger})}
	}
	mesh.HandleTCP(d.stats.counted(d.forwards.TCP))
	mesh.HandleUDP(d.stats.counted(d.forwards.UDP))
	return d, nil
}

// run returns when the agent has ended in good order, or was refused.
func (d *daemon) run(ctx context.Context, restarts <-chan os.Signal) error {
	// Work outlives ctx: the end is orderly.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	d.wg.Go(func() { d.talk(work) })
	d.wg.Go(d.serveSpeedtests)
	d.wg.Go(d.serveTerminals)
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
	select {
	case <-ctx.Done():
		d.log.Info("agent is asked to stop")
	case reason := <-d.asked:
		d.log.Info("agent is asked to stop", "reason", reason)
	case <-restarts:
		d.log.Info("agent is asked to restart")
		stopStarting()
		<-started
		cancel()
		return errors.Join(ErrRestart, d.close())
	case <-d.mesh.Done():
		refused = d.mesh.Err()
		d.log.Warn("agent was removed from the mesh", "err", refused)
	}
	stopStarting()
	<-started
	d.stop(work, refused == nil)
	cancel()
	err := d.close()
	if refused != nil {
		return refused
	}
	return err
}

// close ends everything. Sessions are hung up.
func (d *daemon) close() error {
	err := errors.Join(d.sessionListener.Close(), d.speedListener.Close(), d.terminalListener.Close(), d.api.Close())
	d.mu.Lock()
	if d.stopDuties != nil {
		d.stopDuties()
	}
	d.closing = true
	d.mu.Unlock()
	err = errors.Join(err, d.holder.Close(), d.metadata.Close())
	d.mu.Lock()
	for conn := range d.viewers {
		conn.Close()
	}
	d.mu.Unlock()
	if d.isReady() {
		err = errors.Join(err, d.ssh.Close(), d.scripts.Close())
		if d.unitServer != nil {
			err = errors.Join(err, d.unitServer.Close())
		}
		if d.socketTemp != nil {
			err = errors.Join(err, d.socketTemp.Close())
		}
		if d.git != nil {
			err = errors.Join(err, d.git.close())
		}
		d.stopLogins()
		if d.logins != nil {
			err = errors.Join(err, d.logins.close())
		}
	}
	err = errors.Join(err, d.forwards.Close(), d.mesh.Close())
	d.wg.Wait()
	return err
}

func (d *daemon) isReady() bool {
	select {
	case <-d.ready:
		return true
	default:
		return false
	}
}

func (d *daemon) serveSpeedtests() {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := d.speedListener.Accept()
		if err != nil {
			return // closed
		}
		select {
		case d.speedtests <- struct{}{}:
		default:
			d.log.Warn("too many speed tests", "peer", conn.RemoteAddr())
			conn.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-d.speedtests }()
			if err := speed.Serve(conn); err != nil {
				d.log.Debug("speed test", "peer", conn.RemoteAddr(), "err", err)
			}
		})
	}
}
