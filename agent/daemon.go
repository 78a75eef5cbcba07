package agent

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/connlog"
	"github.com/codermesh/codermesh/v2/agent/forward"
	"github.com/codermesh/codermesh/v2/agent/logship"
	"github.com/codermesh/codermesh/v2/agent/metadata"
	"github.com/codermesh/codermesh/v2/agent/monitor"
	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/agent/visit"
	"github.com/codermesh/codermesh/v2/internal/connset"
	"github.com/codermesh/codermesh/v2/internal/notify"
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
	server   uplink

	connections *connlog.Log

	sessionListener, sshListener, speedListener, terminalListener, regionListener, apiListener net.Listener
	// sshClients are stock SSH clients and visitors at regions, as the sessions see them. regionSSH are visitors of the
	// SSH port.
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
	regionVisits visit.Set

	mu         sync.Mutex         // guards the fields below
	workspace  *workspace         // nil until the first whole manifest
	stopDuties context.CancelFunc // stops the checks and schedules of that manifest
	closing    bool

	wg sync.WaitGroup
}

// current returns the workspace, nil until the first whole manifest, and its latest manifest.
func (d *daemon) current() (*workspace, *agentpb.ManifestResponse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.workspace == nil {
		return nil, nil
	}
	return d.workspace, d.workspace.latest.Load()
}
