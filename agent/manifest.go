package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/monitor"
)

// accept applies a manifest. The first complete one makes the agent ready for sessions; a pending one changes nothing.
func (d *daemon) accept(m *agentpb.ManifestResponse) error {
	id, err := uuid.FromBytes(m.GetWorkspaceId())
	if err != nil {
		return fmt.Errorf("read manifest: workspace id: %w", err)
	}
	if m.GetPending() {
		d.log.Info("waiting for the build to describe this agent completely", "incarnation", m.GetIncarnation())
		return nil
	}
	w, before := d.current()
	first := w == nil
	if first {
		if w, err = d.boot(id, m); err != nil {
			return err
		}
	}
	w.files.Apply(m.GetSecrets()) // before scripts and sessions that may read them
	d.mu.Lock()
	if d.closing {
		d.mu.Unlock()
		if first {
			err = w.close()
		}
		return errors.Join(errClosing, err)
	}
	w.latest.Store(m)
	d.workspace = w
	d.mu.Unlock()
	if first {
		if d.opts.OwnProcess {
			if err := os.Chdir(w.directory(m)); err != nil {
				d.log.Info("workspace folder does not exist", "err", err)
			}
		}
		close(d.booted)
		for _, l := range []net.Listener{d.sessionListener, listener{d.sshClients, &d.stats, d.connections}} {
			d.wg.Go(func() {
				if err := w.ssh.Serve(l); err != nil {
					d.log.Error("cannot accept ssh connections", "err", err)
				}
			})
		}
		d.wg.Go(func() { d.serveSSH(m) })
	}
	if !proto.Equal(withoutSecrets(before), withoutSecrets(m)) {
		d.refresh(w, m)
	}
	d.renewed.Poke()
	return nil
}

// withoutSecrets returns what of a manifest is acted on when it changes: sessions and scripts read secrets when they
// start, and each SSH client gets the latest certificate.
func withoutSecrets(m *agentpb.ManifestResponse) *agentpb.ManifestResponse {
	m = proto.CloneOf(m)
	if m != nil {
		m.Secrets, m.SshHostCertificate = nil, nil
	}
	return m
}

var errClosing = errors.New("the agent is stopping")

// boot makes the workspace from the first manifest.
func (d *daemon) boot(id uuid.UUID, m *agentpb.ManifestResponse) (*workspace, error) {
	w := &workspace{
		log: d.log, user: d.user, url: d.opts.URL, server: &d.server, reports: d.reports, logs: d.logs,
		logins: d.logins,
	}
	return w, w.open(id, m, d.opts, d.stats.session)
}

// refresh applies the parts of a manifest that may change while the agent runs: metadata, health checks, monitors and
// schedules.
func (d *daemon) refresh(w *workspace, m *agentpb.ManifestResponse) {
	setMetadata(d.metadata, m)
	w.units.NextBuild(m.GetIncarnation())
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopDuties != nil {
		d.stopDuties()
	}
	if d.closing {
		return
	}
	var ctx context.Context
	ctx, d.stopDuties = context.WithCancel(context.Background())
	d.wg.Go(func() { checkHealth(ctx, d.reports, m.GetApps()) })
	d.wg.Go(func() {
		d.monitors.Watch(ctx, monitored(m), func(all []monitor.Level) { reportLevels(d.reports, d.monitors, all) })
	})
	d.wg.Go(func() { w.runSchedules(ctx, m) })
}
