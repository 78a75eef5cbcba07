package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// Batch holds the resources that one job reports.
type Batch struct {
	JobID      uuid.UUID
	Transition sdk.Transition
	// WorkspaceID and BuildNumber are set for a build. Without them the agents are for display only: they have no token
	// and never connect.
	WorkspaceID uuid.UUID
	BuildNumber int32
	Resources   []*provisionerpb.Resource
	// Final means that anything the job reported before and does not report now is gone.
	Final bool
	// Planned means that the resources are from the plan of a claim, which has no tokens: the workspace's agents keep
	// theirs.
	Planned bool
	// Warn adds a line to the job's log. Nil drops it.
	Warn func(text string) error
}

// Store writes a batch inside the caller's transaction and returns the ids of the agents that may connect. A job may
// call it several times: Store updates what it has already stored. It does not store the agents of a stop or delete
// build; they stay with the build that started them.
//
// Store refuses an id that belongs to another workspace's agent (a copied state): it omits that object and stores the
// rest. A final batch warns of what it omits in the job's log, which the template's author and the workspace's owner
// read.
func Store(ctx context.Context, q *dbsqlc.Queries, b Batch) ([]uuid.UUID, error) {
	s := storing{Queries: q, batch: b}
	seen := map[string]int{}
	ids := []uuid.UUID{}
	for _, r := range b.Resources {
		key := string(b.Transition) + "/" + r.GetType() + "/" + r.GetName()
		id := uuid.NewSHA1(b.JobID, []byte(key+"/"+strconv.Itoa(seen[key])))
		seen[key]++
		if err := s.resource(ctx, id, r); err != nil {
			return nil, fmt.Errorf("store resource %s.%s: %w", r.GetType(), r.GetName(), err)
		}
		ids = append(ids, id)
	}
	if b.Final {
		if err := q.DeleteResourcesExcept(ctx, dbsqlc.DeleteResourcesExceptParams{
			JobID: b.JobID, Transition: string(b.Transition), Ids: ids,
		}); err != nil {
			return nil, fmt.Errorf("delete old resources: %w", err)
		}
	}
	if b.Final && b.Warn != nil {
		for _, line := range s.omitted {
			if err := b.Warn(line); err != nil {
				return nil, err
			}
		}
	}
	return s.agents, nil
}

type storing struct {
	*dbsqlc.Queries
	batch   Batch
	agents  []uuid.UUID
	omitted []string // what was not stored, and why, and what cannot work
}

// omit notes that something of a template was not stored. place is its file and line; it may be empty.
func (s *storing) omit(place, format string, args ...any) {
	s.omitted = append(s.omitted, at(place)+fmt.Sprintf(format, args...))
}

// copied explains ids that belong to others.
const copied = "its id belongs to another workspace, so the state of this one seems to be a copy. Restore a state of this workspace"

type metadataItem struct {
	Key       string `json:"key"`
	Value     string `json:"value"`
	Sensitive bool   `json:"sensitive"`
}

func (s *storing) resource(ctx context.Context, id uuid.UUID, r *provisionerpb.Resource) error {
	items := []metadataItem{}
	for _, m := range r.GetMetadata() {
		if !m.GetIsNull() {
			items = append(items,
				metadataItem{database.Text(m.GetKey()), database.Text(m.GetValue()), m.GetSensitive()})
		}
	}
	metadata, err := marshal(items)
	if err != nil {
		return err
	}
	if err := s.InsertResource(ctx, dbsqlc.InsertResourceParams{
		ID: id, JobID: s.batch.JobID, Transition: string(s.batch.Transition), Type: database.Text(r.GetType()),
		Name: database.Text(r.GetName()), Icon: database.Text(r.GetIcon()),
		Hide: r.GetHide(), DailyCost: r.GetDailyCost(), InstanceType: database.Text(r.GetInstanceType()),
		Metadata: metadata,
	}); err != nil {
		return fmt.Errorf("insert resource: %w", err)
	}
	if s.batch.WorkspaceID != uuid.Nil && s.batch.Transition != sdk.TransitionStart {
		return nil
	}
	for i, a := range r.GetAgents() {
		if err := s.agent(ctx, id, i, a, kin{external: r.GetType() == sdk.ResourceExternalAgent}); err != nil {
			return fmt.Errorf("store agent %s: %w", a.GetName(), err)
		}
	}
	return nil
}

type metadataScript struct {
	Key         string `json:"key"`
	DisplayName string `json:"display_name"`
	Script      string `json:"script"`
	Interval    int64  `json:"interval"` // seconds
	Timeout     int64  `json:"timeout"`  // seconds
	Order       int32  `json:"order"`
}

// kin is what an agent's place decides about it.
type kin struct {
	external bool
	parent   *uuid.UUID // the agent that starts its dev container; nil without one
	complete bool       // the parent is
}

func (s *storing) agent(ctx context.Context, resource uuid.UUID, index int, a *provisionerpb.Agent, kin kin) error {
	live := s.batch.WorkspaceID != uuid.Nil
	id, err := uuid.FromBytes(a.GetId())
	if !live || err != nil || id == uuid.Nil {
		if live {
			s.omit(a.GetPlace(), "The agent %q is left out: it has no id.", database.Text(a.GetName()))
			return nil
		}
		// A plan has no ids, and an import must not touch an agent that exists, whatever it claims.
		id = uuid.NewSHA1(resource, []byte("agent/"+strconv.Itoa(index)+"/"+a.GetName()))
	}
	if slices.Contains(s.agents, id) {
		return nil
	}
	before, err := s.GetAgentForUpdate(ctx, id)
	existed := err == nil
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("lock agent: %w", err)
	}

	params, err := s.params(id, resource, a)
	if err != nil {
		return err
	}
	// A job's final report is complete.
	params.Complete = s.batch.Final || a.GetComplete() || kin.complete
	params.External, params.ParentID = kin.external, kin.parent
	if live {
		params.WorkspaceID = &s.batch.WorkspaceID
		params.BuildNumber = s.batch.BuildNumber
		if a.GetToken() != "" && kin.parent == nil {
			token := secret.Token(a.GetToken())
			params.TokenHash = token.Hash()
			if !kin.external {
				params.OfflineTokenHash = token.Offline().Hash()
			}
		}
		if s.batch.Planned && existed {
			params.TokenHash = before.TokenHash
		}
	}
	var had *dbsqlc.WorkspaceAgent
	if existed {
		had = &before
	}
	if params.Monitors, err = s.monitors(ctx, a, had); err != nil {
		return err
	}
	n, err := s.UpsertAgent(ctx, params)
	if err != nil {
		return fmt.Errorf("upsert agent: %w", err)
	}
	if n == 0 {
		if live {
			s.omit(a.GetPlace(), "The agent %q is left out: %s.", database.Text(a.GetName()), copied)
		}
		return nil // without a workspace: stored earlier by this job
	}
	s.agents = append(s.agents, id)
	if live && existed {
		if err := s.NotifyAgentManifest(ctx, id); err != nil {
			return fmt.Errorf("announce agent's manifest: %w", err)
		}
	}
	if live && s.batch.Final && params.Auth != "token" && params.InstanceID == "" {
		s.omit(a.GetPlace(), "The agent %q waits for a machine with %s, and no resource says which one it is: add a "+
			"coder_agent_instance.", database.Text(a.GetName()), params.Auth)
	}
	rebuilt := existed && before.BuildNumber != s.batch.BuildNumber
	if err := s.definition(ctx, id, a, existed, rebuilt); err != nil {
		return err
	}
	if live && kin.parent == nil {
		if err := s.devcontainers(ctx, resource, id, a.GetDevcontainers(), params.Complete); err != nil {
			return err
		}
	}
	if rebuilt {
		return s.reset(ctx, before)
	}
	return nil
}

func (s *storing) params(id, resource uuid.UUID, a *provisionerpb.Agent) (dbsqlc.UpsertAgentParams, error) {
	env := make(map[string]string, len(a.GetEnv()))
	for k, v := range a.GetEnv() {
		env[database.Text(k)] = database.Text(v)
	}
	environment, err := marshal(env)
	if err != nil {
		return dbsqlc.UpsertAgentParams{}, err
	}
	items := []metadataScript{}
	for _, m := range a.GetMetadata() {
		items = append(items, metadataScript{database.Text(m.GetKey()), database.Text(m.GetDisplayName()), database.Text(m.GetScript()), m.GetInterval(), m.GetTimeout(), m.GetOrder()})
	}
	metadata, err := marshal(items)
	if err != nil {
		return dbsqlc.UpsertAgentParams{}, err
	}
	behavior := string(sdk.StartupNonBlocking)
	if a.GetStartupScriptBehavior() == string(sdk.StartupBlocking) {
		behavior = string(sdk.StartupBlocking)
	}
	apps := slices.Clone(a.GetDisplayApps())
	if apps == nil {
		apps = []string{}
	}
	return dbsqlc.UpsertAgentParams{
		ID: id, ResourceID: resource, Name: database.Text(a.GetName()), OperatingSystem: database.Text(a.GetOs()),
		Architecture: database.Text(a.GetArch()),
		Directory:    database.Text(a.GetDirectory()), Environment: environment, StartupScriptBehavior: behavior,
		MotdFile:                 database.Text(a.GetMotdFile()),
		UserData:                 !a.GetNoUserData(),
		TroubleshootingUrl:       database.Text(a.GetTroubleshootingUrl()),
		Auth:                     cmp.Or(database.Text(a.GetAuth()), "token"),
		InstanceID:               database.Text(a.GetInstanceId()),
		InstanceAccount:          database.Text(a.GetInstanceAccount()),
		ConnectionTimeoutSeconds: a.GetConnectionTimeoutSeconds(),
		DisplayApps:              apps, DisplayOrder: a.GetOrder(), Metadata: metadata,
	}, nil
}

// definition stores the agent's scripts with their log sources, and its apps. Those of an agent that existed are
// replaced. What programs have added to its log stays while it is the same build's: they report during the build.
func (s *storing) definition(ctx context.Context, agent uuid.UUID, a *provisionerpb.Agent, existed, rebuilt bool) error {
	scripts, sources := []uuid.UUID{}, []uuid.UUID{}
	for i, sc := range a.GetScripts() {
		id := s.id(sc.GetId(), agent, "script", i)
		scripts, sources = append(scripts, id), append(sources, uuid.NewSHA1(id, []byte("log")))
	}
	for _, c := range a.GetDevcontainers() {
		if id, err := uuid.FromBytes(c.GetId()); err == nil {
			sources = append(sources, devcontainerSource(id))
		}
	}
	if existed {
		if err := s.DeleteLogSourcesExcept(ctx, dbsqlc.DeleteLogSourcesExceptParams{
			AgentID: agent, Ids: sources, Rebuilt: rebuilt,
		}); err != nil {
			return fmt.Errorf("delete old log sources: %w", err)
		}
		if err := s.DeleteScriptsExcept(ctx, dbsqlc.DeleteScriptsExceptParams{
			AgentID: agent, Ids: scripts,
		}); err != nil {
			return fmt.Errorf("delete old scripts: %w", err)
		}
	}
	for i, sc := range a.GetScripts() {
		n, err := s.UpsertLogSource(ctx, dbsqlc.UpsertLogSourceParams{
			ID: sources[i], AgentID: agent, DisplayName: database.Text(sc.GetDisplayName()),
			Icon: database.Text(sc.GetIcon()),
		})
		if err != nil {
			return fmt.Errorf("upsert log source: %w", err)
		}
		if n == 0 {
			s.omit(a.GetPlace(), "The script %q of the agent %q is left out: %s.", database.Text(sc.GetDisplayName()),
				database.Text(a.GetName()), copied)
			continue
		}
		if n, err = s.UpsertScript(ctx, dbsqlc.UpsertScriptParams{
			ID: scripts[i], AgentID: agent, LogSourceID: sources[i], DisplayName: database.Text(sc.GetDisplayName()),
			Script: database.Text(sc.GetScript()), Cron: database.Text(sc.GetCron()),
			LogPath: database.Text(sc.GetLogPath()), StartBlocksLogin: sc.GetStartBlocksLogin(),
			RunOnStart: sc.GetRunOnStart(), RunOnStop: sc.GetRunOnStop(),
			TimeoutSeconds: sc.GetTimeoutSeconds(), Position: int32(i),
		}); err != nil {
			return fmt.Errorf("upsert script: %w", err)
		}
		if n == 0 {
			s.omit(a.GetPlace(), "The script %q of the agent %q is left out: %s.", database.Text(sc.GetDisplayName()),
				database.Text(a.GetName()), copied)
		}
	}
	return s.apps(ctx, agent, a.GetApps(), existed)
}

func (s *storing) apps(ctx context.Context, agent uuid.UUID, apps []*provisionerpb.App, existed bool) error {
	ids := []uuid.UUID{}
	for i, app := range apps {
		ids = append(ids, s.id(app.GetId(), agent, "app/"+app.GetSlug(), i))
	}
	if existed {
		if err := s.DeleteAppsExcept(ctx, dbsqlc.DeleteAppsExceptParams{AgentID: agent, Ids: ids}); err != nil {
			return fmt.Errorf("delete old apps: %w", err)
		}
	}
	slugs := map[string]bool{}
	for i, app := range apps {
		if slugs[app.GetSlug()] {
			if app.GetPlace() == "" { // else its provisioner has said so
				s.omit("", "The app %q is left out: its agent has another app with this slug.",
					database.Text(app.GetSlug()))
			}
			continue
		}
		slugs[app.GetSlug()] = true
		n, err := s.UpsertApp(ctx, appParams(ids[i], agent, app))
		if err != nil {
			return fmt.Errorf("upsert app: %w", err)
		}
		if n == 0 {
			s.omit(app.GetPlace(), "The app %q is left out: %s.", database.Text(app.GetSlug()), copied)
		}
	}
	return nil
}

func appParams(id, agent uuid.UUID, app *provisionerpb.App) dbsqlc.UpsertAppParams {
	p := dbsqlc.UpsertAppParams{
		ID: id, AgentID: agent, Slug: database.Text(app.GetSlug()), DisplayName: database.Text(app.GetDisplayName()),
		Icon: database.Text(app.GetIcon()), Command: database.Text(app.GetCommand()),
		Url: database.Text(app.GetUrl()), External: app.GetExternal(), Subdomain: app.GetSubdomain(),
		SharingLevel:   string(sdk.ShareOwner),
		HealthcheckUrl: database.Text(app.GetHealthcheckUrl()), HealthcheckInterval: app.GetHealthcheckInterval(),
		HealthcheckThreshold: app.GetHealthcheckThreshold(),
		Health:               string(sdk.AppDisabled), Hidden: app.GetHidden(), DisplayOrder: app.GetOrder(),
		DisplayGroup: database.Text(app.GetGroup()),
		OpenIn:       string(sdk.OpenInSlimWindow), Tooltip: database.Text(app.GetTooltip()),
	}
	switch share := sdk.AppShare(app.GetShare()); share {
	case sdk.ShareAuthenticated, sdk.ShareOrganization, sdk.SharePublic:
		p.SharingLevel = string(share)
	}
	if p.HealthcheckUrl != "" {
		p.Health = string(sdk.AppInitializing)
	}
	if app.GetOpenIn() == string(sdk.OpenInTab) {
		p.OpenIn = string(sdk.OpenInTab)
	}
	return p
}

// reset clears an agent's states from an earlier build: new scripts, new log, and not seen yet unless it is still
// connected.
func (s *storing) reset(ctx context.Context, before dbsqlc.WorkspaceAgent) error {
	id := before.ID
	err := errors.Join(s.DeleteAgentLogs(ctx, id), s.ResetAgentLogs(ctx, id), s.ResetLogSources(ctx, id),
		s.ResetScripts(ctx, id), s.ResetApps(ctx, id))
	if err != nil {
		return fmt.Errorf("reset agent: %w", err)
	}
	if before.LastConnectedAt != nil && before.DisconnectedAt == nil {
		return nil
	}
	if err := s.ResetAgentConnection(ctx, id); err != nil {
		return fmt.Errorf("reset agent's connection: %w", err)
	}
	return nil
}

// id returns the id that Terraform has for an object; without one, and in a plan, an id derived from the agent's.
func (s *storing) id(raw []byte, agent uuid.UUID, kind string, index int) uuid.UUID {
	if id, err := uuid.FromBytes(raw); err == nil && id != uuid.Nil && s.batch.WorkspaceID != uuid.Nil {
		return id
	}
	return uuid.NewSHA1(agent, []byte(kind+"/"+strconv.Itoa(index)))
}

func marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode json: %w", err)
	}
	return data, nil
}
