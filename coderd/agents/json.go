package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Place names the workspace and the owner of a job's resources, for the names of their apps. The zero value is for
// imports and dry runs.
type Place struct{ Workspace, Owner string }

// Resources returns what jobs left behind, as the API shows it, by job. The number of queries does not depend on the
// number of jobs.
func (s *Service) Resources(
	ctx context.Context, q *dbsqlc.Queries, jobs map[uuid.UUID]Place,
) (map[uuid.UUID][]sdk.WorkspaceResource, error) {
	out := make(map[uuid.UUID][]sdk.WorkspaceResource, len(jobs))
	if len(jobs) == 0 {
		return out, nil
	}
	rows, err := q.ListResources(ctx, slices.Collect(maps.Keys(jobs)))
	if err != nil {
		return nil, fmt.Errorf("list resources: %w", err)
	}
	if len(rows) == 0 {
		return out, nil
	}
	ids := make([]uuid.UUID, len(rows))
	places := make(map[uuid.UUID]Place, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
		places[r.ID] = jobs[r.JobID]
	}
	agents, err := q.ListAgentsOfResources(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("list agents: %w", err)
	}
	list, err := s.show(ctx, q, agents, func(a dbsqlc.WorkspaceAgent) Place { return places[a.ResourceID] })
	if err != nil {
		return nil, err
	}
	byResource := map[uuid.UUID][]sdk.WorkspaceAgent{}
	for _, a := range list {
		byResource[a.ResourceID] = append(byResource[a.ResourceID], a)
	}
	sortByAgents(rows, agents)
	for _, r := range rows {
		var metadata []sdk.ResourceMetadata
		if string(r.Metadata) != "[]" { // most have none
			if err := json.Unmarshal(r.Metadata, &metadata); err != nil {
				return nil, fmt.Errorf("decode resource's metadata: %w", err)
			}
		}
		out[r.JobID] = append(out[r.JobID], sdk.WorkspaceResource{
			ID: r.ID, CreatedAt: r.CreatedAt, JobID: r.JobID, Transition: sdk.Transition(r.Transition), Type: r.Type,
			Name: r.Name,
			Hide: r.Hide, Icon: r.Icon, Agents: byResource[r.ID], Metadata: metadata, DailyCost: r.DailyCost,
		})
	}
	return out, nil
}

// sortByAgents sorts resources by the order that templates give their agents, which counts among all agents of a
// workspace. Resources with the same order, and without agents, keep theirs. agents are sorted.
func sortByAgents(rows []dbsqlc.WorkspaceResource, agents []shown) {
	order := map[uuid.UUID]int32{}
	for _, a := range slices.Backward(agents) {
		order[a.WorkspaceAgent.ResourceID] = a.WorkspaceAgent.DisplayOrder
	}
	slices.SortStableFunc(rows, func(a, b dbsqlc.WorkspaceResource) int {
		return cmp.Or(cmp.Compare(a.Transition, b.Transition), cmp.Compare(order[a.ID], order[b.ID]))
	})
}

// show returns the agents with all their parts, in the same order.
func (s *Service) show(
	ctx context.Context, q *dbsqlc.Queries, agents []shown, place func(dbsqlc.WorkspaceAgent) Place,
) ([]sdk.WorkspaceAgent, error) {
	if len(agents) == 0 {
		return nil, nil
	}
	ids := make([]uuid.UUID, len(agents))
	for i, a := range agents {
		ids[i] = a.WorkspaceAgent.ID
	}
	apps, err := q.ListAppsOfAgents(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("list apps: %w", err)
	}
	scripts, err := q.ListScriptsOfAgents(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("list scripts: %w", err)
	}
	sources, err := q.ListLogSourcesOfAgents(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("list log sources: %w", err)
	}
	scriptsOf := make(map[uuid.UUID][]dbsqlc.WorkspaceAgentScript, len(agents))
	for _, sc := range scripts {
		scriptsOf[sc.AgentID] = append(scriptsOf[sc.AgentID], sc)
	}
	containers := map[uuid.UUID]dbsqlc.WorkspaceAgentDevcontainer{} // by the agent inside
	if slices.ContainsFunc(agents, func(a shown) bool { return a.WorkspaceAgent.ParentID != nil }) {
		rows, err := q.ListDevcontainers(ctx, ids)
		if err != nil {
			return nil, fmt.Errorf("list dev containers: %w", err)
		}
		for _, c := range rows {
			containers[c.SubagentID] = c
		}
	}
	out := make([]sdk.WorkspaceAgent, len(agents))
	index := make(map[uuid.UUID]int, len(agents))
	for i, a := range agents {
		id := a.WorkspaceAgent.ID
		if out[i], err = s.agentJSON(a, scriptsOf[id]); err != nil {
			return nil, err
		}
		index[id] = i
		if c, ok := containers[id]; ok && out[i].Status != sdk.AgentConnected {
			out[i].Health = devcontainerHealth(c)
		}
	}
	for _, app := range apps {
		i := index[app.AgentID]
		out[i].Apps = append(out[i].Apps, appJSON(app, out[i].Name, place(agents[i].WorkspaceAgent), s.opts.AccessURL))
	}
	for _, sc := range scripts {
		i := index[sc.AgentID]
		out[i].Scripts = append(out[i].Scripts, sdk.AgentScript{
			ID: sc.ID, LogSourceID: sc.LogSourceID, LogPath: sc.LogPath, DisplayName: sc.DisplayName, Script: sc.Script,
			Cron:       sc.Cron,
			RunOnStart: sc.RunOnStart, RunOnStop: sc.RunOnStop, StartBlocksLogin: sc.StartBlocksLogin,
			Timeout: time.Duration(sc.TimeoutSeconds) * time.Second,
			EndedAt: sc.EndedAt,
		})
	}
	for _, src := range sources {
		i := index[src.AgentID]
		out[i].LogSources = append(out[i].LogSources, sdk.AgentLogSource{
			WorkspaceAgentID: src.AgentID, ID: src.ID, CreatedAt: src.CreatedAt, DisplayName: src.DisplayName,
			Icon: src.Icon,
		})
	}
	return out, nil
}

func (s *Service) agentJSON(row shown, scripts []dbsqlc.WorkspaceAgentScript) (sdk.WorkspaceAgent, error) {
	a := row.WorkspaceAgent
	var env map[string]string
	if string(a.Environment) != "{}" { // most set nothing
		if err := json.Unmarshal(a.Environment, &env); err != nil {
			return sdk.WorkspaceAgent{}, fmt.Errorf("decode agent's environment: %w", err)
		}
	}
	updated := a.CreatedAt
	for _, t := range []*time.Time{a.LastConnectedAt, a.DisconnectedAt, a.LifecycleChangedAt} {
		if t != nil && t.After(updated) {
			updated = *t
		}
	}
	out := sdk.WorkspaceAgent{
		ID: a.ID, ParentID: a.ParentID, CreatedAt: a.CreatedAt, UpdatedAt: updated,
		FirstConnectedAt: a.FirstConnectedAt, LastConnectedAt: a.LastConnectedAt,
		DisconnectedAt: a.DisconnectedAt, StartedAt: a.StartedAt, ReadyAt: a.ReadyAt,
		Status: sdk.AgentStatus(row.Status), LifecycleState: sdk.AgentLifecycle(a.LifecycleState),
		Name: a.Name, ResourceID: a.ResourceID, Architecture: a.Architecture, OperatingSystem: a.OperatingSystem,
		EnvironmentVariables: env,
		LogsLength:           a.LogsLength, LogsOverflowed: a.LogsOverflowed, Directory: a.Directory,
		ExpandedDirectory: a.ExpandedDirectory, Version: a.Version,
		APIVersion: a.ApiVersion, ConnectionTimeoutSeconds: a.ConnectionTimeoutSeconds,
		TroubleshootingURL:    safeURL(a.TroubleshootingUrl),
		InstanceID:            a.InstanceID,
		Subsystems:            a.Subsystems,
		StartupScriptBehavior: sdk.StartupBehavior(a.StartupScriptBehavior), External: a.External,
	}
	var err error
	if out.Monitors, err = monitorsJSON(a.Monitors); err != nil {
		return sdk.WorkspaceAgent{}, err
	}
	for _, app := range a.DisplayApps {
		out.DisplayApps = append(out.DisplayApps, sdk.DisplayApp(app))
	}
	out.Health = health(row, scripts, s.opts.AccessURL, s.opts.Mesh.AgentContested(a.ID))
	if out.Status == sdk.AgentConnected {
		sessions, relay, latency := s.Uses(a.ID, a.ServerID)
		out.Connections = sessions
		if latency > 0 {
			out.Latency = sdk.Map[sdk.RelayLatency]{relay: {Preferred: true, LatencyMillis: float64(latency) / float64(time.Millisecond)}}
		}
	}
	return out, nil
}

func appJSON(app dbsqlc.WorkspaceApp, agent string, place Place, accessURL string) sdk.WorkspaceApp {
	out := sdk.WorkspaceApp{
		ID: app.ID, URL: app.Url, External: app.External, Slug: app.Slug, DisplayName: app.DisplayName,
		Command: app.Command, Icon: app.Icon,
		Subdomain: app.Subdomain, SharingLevel: sdk.AppShare(app.SharingLevel), Health: sdk.AppHealth(app.Health),
		Group:  app.DisplayGroup,
		Hidden: app.Hidden, OpenIn: sdk.AppOpenIn(app.OpenIn), Tooltip: app.Tooltip,
		Healthcheck: sdk.AppHealthcheck{
			URL: app.HealthcheckUrl, Interval: app.HealthcheckInterval, Threshold: app.HealthcheckThreshold,
		},
	}
	if out.External {
		out.URL = safeAppURL(out.URL, accessURL)
	}
	if app.Subdomain && place.Workspace != "" {
		out.SubdomainName = app.Slug + "--" + agent + "--" + place.Workspace + "--" + place.Owner
	}
	return out
}
