package workspaces

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/bootstrap"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/provisionerd/tfstate"
)

// getExternalAgent answers how the workspace's owner starts an external agent. The database has only the hash of an
// agent's token: the token is read from the Terraform state of the latest build.
func (s *Service) getExternalAgent(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	ws, err := s.workspace(r, rbac.Read)
	if err != nil {
		return err
	}
	if err := httpapi.ActorFrom(ctx).May(rbac.Update, object(ws).As(rbac.Agent)); err != nil {
		return err
	}
	build, err := s.opts.DB.GetLatestBuild(ctx, ws.ID)
	if err != nil {
		return fmt.Errorf("read latest build: %w", err)
	}
	if sdk.Transition(build.Transition) != sdk.TransitionStart || sdk.JobStatus(build.JobStatus) != sdk.JobSucceeded {
		return fault.New(fault.Conflict, "The workspace %q is not running.", ws.Name).
			WithDetail("The token of its agent changes with each start.")
	}
	named := r.PathValue("workspaceagent")
	p := dbsqlc.GetBuildAgentParams{BuildID: build.ID, Name: named}
	if id, err := uuid.Parse(named); err == nil {
		p.ID = &id
	}
	a, err := s.opts.DB.GetBuildAgent(ctx, p)
	if database.IsNotFound(err) {
		return fault.New(fault.NotFound, "The workspace %q has no agent %q.", ws.Name, database.Text(named))
	}
	if err != nil {
		return fmt.Errorf("read agent: %w", err)
	}
	if !a.External {
		return fault.New(fault.Conflict, "The workspace's build starts the agent %q: it is not an external agent.",
			a.Name)
	}
	state, err := s.state(ctx, s.opts.DB.Queries, ws.ID, build.ID)
	if err != nil {
		return err
	}
	token := tfstate.AgentToken(state, a.ID)
	if _, err := uuid.Parse(token); err != nil || !secret.Token(token).Matches(a.TokenHash) {
		return fault.New(fault.Conflict, "The token of the agent %q is no longer valid.", a.Name).
			WithDetail("Restart the workspace to make a new one.")
	}
	// The agent reports both when it connects, and the owner runs what follows.
	system, arch := a.OperatingSystem, a.Architecture
	if arch == "arm" {
		arch = "armv7"
	}
	if bootstrap.Script(system, arch) == "" {
		return fault.New(fault.Conflict, "The agent %q reports a system that agents do not run on.", a.Name)
	}
	script := strings.TrimSuffix(s.opts.AccessURL, "/") + "/api/v2/init-script/" + system + "/" + arch
	command := fmt.Sprintf("curl -fsSL %s | CODER_AGENT_TOKEN=%s sh", shell.POSIX(script), shell.POSIX(token))
	if system == "windows" { // for PowerShell, in whose quotes only quotes mean something; the token is a UUID
		command = fmt.Sprintf("$env:CODER_AGENT_TOKEN = '%s'; irm '%s' | iex", token,
			strings.ReplaceAll(script, "'", "''"))
	}
	httpapi.NoStore(w.Header())
	return httpapi.Write(w, http.StatusOK, sdk.ExternalAgentCredentials{Command: command, AgentToken: token})
}
