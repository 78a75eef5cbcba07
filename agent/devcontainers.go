package agent

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/devcontainer"
	"github.com/codermesh/codermesh/v2/agent/logship"
)

// runDevcontainers starts the dev containers of a build and looks after them until ctx ends.
func (w *workspace) runDevcontainers(ctx context.Context, m *agentpb.ManifestResponse) {
	env := w.variables(m)
	all := map[uuid.UUID]*devContainer{}
	for _, def := range m.GetDevcontainers() {
		id, err := uuid.FromBytes(def.GetId())
		source, sourceErr := uuid.FromBytes(def.GetLogSourceId())
		if err := errors.Join(err, sourceErr); err != nil {
			w.log.Warn("manifest has a dev container without an id", "err", err)
			continue
		}
		out := w.logs.Source(source).Writer(logship.Info)
		all[id] = &devContainer{
			log: w.log, server: w.server, url: w.serverURL, id: id, out: out,
			host: devcontainer.Host{Env: env.List(), Output: out},
			spec: devcontainer.Spec{Folder: w.user.Directory(def.GetWorkspaceFolder(), env),
				Config: env.Expand(def.GetConfigPath())},
			changes: make(chan agentpb.ChangeDevcontainerRequest_Change, 1),
		}
	}
	w.mu.Lock()
	w.devcontainers = all
	w.mu.Unlock()
	var running sync.WaitGroup
	for _, c := range all {
		running.Go(func() { c.run(ctx) })
	}
	running.Wait()
}

// stopDevcontainers stops the running dev containers, with the workspace that they belong to. Nothing else runs them
// any more.
func (w *workspace) stopDevcontainers(ctx context.Context, listening bool) {
	w.mu.Lock()
	all := w.devcontainers
	w.mu.Unlock()
	var stopping sync.WaitGroup
	for _, c := range all {
		stopping.Go(func() { c.stop(ctx, listening) })
	}
	stopping.Wait()
}

// devcontainer returns a dev container of the last build whose start scripts have ended, or nil.
func (w *workspace) devcontainer(id uuid.UUID) *devContainer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.devcontainers[id]
}
