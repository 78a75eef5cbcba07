package workspaces

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// getTimings answers with when the phases of a build began and ended.
func (s *Service) getTimings(w http.ResponseWriter, r *http.Request) error {
	b, _, err := s.buildInPath(r, rbac.Read, rbac.WorkspaceBuild)
	if err != nil {
		return err
	}
	return s.writeTimings(w, r, b)
}

// getLatestTimings answers with those of a workspace's latest build.
func (s *Service) getLatestTimings(w http.ResponseWriter, r *http.Request) error {
	ws, err := s.workspace(r, rbac.Read)
	if err != nil {
		return err
	}
	if err := httpapi.ActorFrom(r.Context()).May(rbac.Read, object(ws).As(rbac.WorkspaceBuild)); err != nil {
		return err
	}
	if ws.LatestBuildID == nil {
		return rbac.NotFound(rbac.WorkspaceBuild)
	}
	b, err := s.opts.DB.GetBuild(r.Context(), *ws.LatestBuildID)
	if err != nil {
		return lookup.Fault(err, rbac.WorkspaceBuild, "read build")
	}
	return s.writeTimings(w, r, b)
}

// writeTimings answers with what a build's job waited for and did, according to its log, and how long its agents and
// their scripts took.
func (s *Service) writeTimings(w http.ResponseWriter, r *http.Request, b dbsqlc.GetBuildRow) error {
	ctx, db := r.Context(), s.opts.DB
	job, err := db.GetJob(ctx, b.JobID)
	if err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	stages, err := db.ListStageTimings(ctx, job.ID)
	if err != nil {
		return fmt.Errorf("list stages: %w", err)
	}
	lines, err := db.ListResourceLines(ctx, job.ID)
	if err != nil {
		return fmt.Errorf("list resources' lines: %w", err)
	}
	out := sdk.BuildTimings{Provisioner: slices.Concat(jobTimings(job, stages), resourceTimings(job, lines))}
	agents, err := db.ListAgentTimings(ctx, dbsqlc.ListAgentTimingsParams{
		WorkspaceID: &b.WorkspaceID, BuildNumber: b.BuildNumber,
	})
	if err != nil {
		return fmt.Errorf("list agents: %w", err)
	}
	for _, a := range agents {
		if a.FirstConnectedAt != nil && a.FirstConnectedAt.After(a.CreatedAt) {
			out.Connections = append(out.Connections, sdk.AgentTiming{
				StartedAt: a.CreatedAt, EndedAt: *a.FirstConnectedAt, Stage: "connect", AgentID: a.ID,
				AgentName: a.Name,
			})
		}
	}
	scripts, err := db.ListScriptTimings(ctx, dbsqlc.ListScriptTimingsParams{
		WorkspaceID: &b.WorkspaceID, BuildNumber: b.BuildNumber,
	})
	if err != nil {
		return fmt.Errorf("list scripts: %w", err)
	}
	for _, row := range scripts {
		out.Scripts = append(out.Scripts, scriptTiming(row))
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// jobTimings returns a job's wait and its stages. A stage lasts until the next one begins.
func jobTimings(job dbsqlc.ProvisionerJob, stages []dbsqlc.ListStageTimingsRow) []sdk.ProvisionerTiming {
	var out []sdk.ProvisionerTiming
	if job.StartedAt != nil {
		out = append(out, sdk.ProvisionerTiming{
			JobID: job.ID, StartedAt: job.CreatedAt, EndedAt: *job.StartedAt, Stage: "Queued", Source: "server",
			Action: "queue",
		})
	}
	for i, stage := range stages {
		if job.StartedAt == nil || stage.EndedAt.Before(*job.StartedAt) {
			continue // from the server while the job waited
		}
		end := stage.EndedAt
		if i+1 < len(stages) {
			end = stages[i+1].StartedAt
		} else if job.CompletedAt != nil {
			end = *job.CompletedAt
		}
		out = append(out, sdk.ProvisionerTiming{
			JobID: job.ID, StartedAt: stage.StartedAt, EndedAt: later(end, stage.StartedAt), Stage: stage.Stage,
			Source: "provisioner", Action: "run",
		})
	}
	return out
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// resourceLine matches Terraform's report about one resource: "docker_container.dev: Creation complete after 1s
// [id=…]".
var resourceLine = lazyregexp.New(`^(\S+): (Creating|Destroying|Modifying|Reading|Creation complete|Destruction complete|Modifications complete|Read complete)\b`)

// actions maps Terraform's words for the beginning or end of an action on a resource to the action.
var actions = map[string]string{
	"Creating": "create", "Destroying": "destroy", "Modifying": "update", "Reading": "read",
	"Creation complete": "create", "Destruction complete": "destroy", "Modifications complete": "update", "Read complete": "read",
}

// resourceTimings pairs the lines of beginnings and ends. It omits actions that have only one of them.
func resourceTimings(job dbsqlc.ProvisionerJob, lines []dbsqlc.ListResourceLinesRow) []sdk.ProvisionerTiming {
	var out []sdk.ProvisionerTiming
	begun := map[string]dbsqlc.ListResourceLinesRow{}
	for _, line := range lines {
		m := resourceLine().FindStringSubmatch(line.Output)
		if m == nil {
			continue
		}
		action := actions[m[2]]
		key := m[1] + " " + action
		if !strings.HasSuffix(m[2], "complete") {
			begun[key] = line
			continue
		}
		first, ok := begun[key]
		if !ok {
			continue
		}
		delete(begun, key)
		out = append(out, sdk.ProvisionerTiming{
			JobID: job.ID, StartedAt: first.CreatedAt, EndedAt: line.CreatedAt, Stage: first.Stage,
			Source: "provisioner", Action: action, Resource: m[1],
		})
	}
	return out
}

func scriptTiming(row dbsqlc.ListScriptTimingsRow) sdk.ScriptTiming {
	out := sdk.ScriptTiming{
		StartedAt: *row.StartedAt, EndedAt: *row.EndedAt, ExitCode: row.ExitCode, DisplayName: row.DisplayName,
		AgentID: row.AgentID, AgentName: row.AgentName,
		Stage: "cron", Status: "ok",
	}
	switch {
	case row.RunOnStart:
		out.Stage = "start"
	case row.RunOnStop:
		out.Stage = "stop"
	}
	switch {
	case row.TimedOut:
		out.Status = "timed_out"
	case row.ExitCode != 0:
		out.Status = "exit_failure"
	}
	return out
}
