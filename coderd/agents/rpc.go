package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/rpcwire"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	maxMessage      = 4 << 20 // bytes of one RPC message
	maxText         = 1 << 10 // bytes of a text that an agent reports about itself
	protocolVersion = 1
)

// RPCHandler serves AgentService; mount it at the returned path, on the mesh only. caller returns the agent that
// WireGuard bound to a mesh source address.
func (s *Service) RPCHandler(caller func(netip.Addr) (agentID uuid.UUID, ok bool)) (string, http.Handler) {
	path, h := agentpbconnect.NewAgentServiceHandler(&rpc{
		Service: s, caller: caller,
	}, connect.WithReadMaxBytes(maxMessage), connect.WithCompressMinBytes(rpcwire.CompressFrom))
	return path, rpcwire.Handler(h)
}

// rpc is the service as seen by agents.
type rpc struct {
	*Service
	caller func(netip.Addr) (uuid.UUID, bool)
}

// who returns the agent behind a peer address. An agent can report only about itself.
func (r *rpc) who(peer connect.Peer) (uuid.UUID, error) {
	addr, err := netip.ParseAddrPort(peer.Addr)
	if err == nil {
		if id, ok := r.caller(addr.Addr()); ok {
			return id, nil
		}
	}
	return uuid.Nil, connect.NewError(connect.CodePermissionDenied, errors.New("the caller is not an agent"))
}

func (r *rpc) Manifest(
	ctx context.Context, req *connect.Request[agentpb.ManifestRequest],
) (*connect.Response[agentpb.ManifestResponse], error) {
	id, err := r.who(req.Peer())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	m, err := r.opts.DB.GetAgentManifest(ctx, id)
	if err != nil {
		return nil, r.fail(ctx, id, "read manifest", err)
	}
	a := m.WorkspaceAgent
	out := &agentpb.ManifestResponse{
		AgentId: id[:], AgentName: a.Name, WorkspaceId: a.WorkspaceID[:], WorkspaceName: m.WorkspaceName,
		OwnerName: m.OwnerName, OwnerEmail: m.OwnerEmail,
		AccessUrl: r.opts.AccessURL, Incarnation: uint64(a.BuildNumber),
		VscodeProxyUri: r.opts.Ports.PortURL(m.OwnerName, m.WorkspaceName, a.Name),
		Pending:        !a.Complete,
	}
	if out.Pending {
		if !req.Msg.GetAcceptsPending() {
			return nil, connect.NewError(connect.CodeUnavailable,
				errors.New("the build has not described this agent completely yet: try again"))
		}
		return connect.NewResponse(out), nil
	}
	if err := r.describe(ctx, a, out); err != nil {
		return nil, err
	}
	if r.opts.HostKeys != nil {
		out.SshHostKey = r.opts.HostKeys.Agent(*a.WorkspaceID, a.Name)
		if out.SshHostCertificate, err = r.opts.HostKeys.CertifyAgent(ctx, *a.WorkspaceID, m.OwnerName, m.WorkspaceName, a.Name); err != nil {
			r.log.WarnContext(ctx, "cannot certify agent's SSH host key", "agent", id, "err", err) // clients can still know the key
		}
	}
	if err := r.addSecrets(ctx, m, out); err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// describe adds to a manifest what the agent must run.
func (r *rpc) describe(ctx context.Context, a dbsqlc.WorkspaceAgent, out *agentpb.ManifestResponse) error {
	id := a.ID
	scripts, err := r.opts.DB.ListScriptsOfAgents(ctx, []uuid.UUID{id})
	if err != nil {
		return r.fail(ctx, id, "read scripts", err)
	}
	env := map[string]string{}
	if err := json.Unmarshal(a.Environment, &env); err != nil {
		return r.fail(ctx, id, "read environment", err)
	}
	out.Directory, out.Env, out.MotdFile = a.Directory, env, a.MotdFile
	out.StartBlocksLogin = a.StartupScriptBehavior == string(sdk.StartupBlocking)
	for _, sc := range scripts {
		out.Scripts = append(out.Scripts, &agentpb.Script{
			Id: sc.ID[:], LogSourceId: sc.LogSourceID[:], DisplayName: sc.DisplayName, Script: sc.Script, Cron: sc.Cron,
			StartBlocksLogin: sc.StartBlocksLogin,
			RunOnStart:       sc.RunOnStart, RunOnStop: sc.RunOnStop, TimeoutSeconds: sc.TimeoutSeconds, LogPath: sc.LogPath,
		})
	}
	containers, err := r.opts.DB.ListDevcontainers(ctx, []uuid.UUID{id})
	if err != nil {
		return r.fail(ctx, id, "read dev containers", err)
	}
	for _, c := range containers {
		if c.AgentID == id {
			out.Devcontainers = append(out.Devcontainers, &agentpb.Devcontainer{
				Id: c.ID[:], LogSourceId: c.LogSourceID[:], Name: c.Name, WorkspaceFolder: c.WorkspaceFolder,
				ConfigPath: c.ConfigPath,
			})
		}
	}
	var items []metadataScript
	if err := json.Unmarshal(a.Metadata, &items); err != nil {
		return r.fail(ctx, id, "read metadata", err)
	}
	for _, item := range items {
		out.Metadata = append(out.Metadata, &agentpb.Metadata{
			Key: item.Key, Script: item.Script, IntervalSeconds: item.Interval, TimeoutSeconds: item.Timeout,
		})
	}
	var monitors []monitor
	if err := json.Unmarshal(a.Monitors, &monitors); err != nil {
		return r.fail(ctx, id, "read monitors", err)
	}
	for _, m := range monitors {
		out.Monitors = append(out.Monitors, &agentpb.Monitor{
			Volume: m.Volume, ThresholdPercent: uint32(m.Threshold), Over: m.Over,
		})
	}
	apps, err := r.opts.DB.ListAppsOfAgents(ctx, []uuid.UUID{id})
	if err != nil {
		return r.fail(ctx, id, "read apps", err)
	}
	for _, app := range apps {
		if app.HealthcheckUrl != "" {
			out.Apps = append(out.Apps, &agentpb.App{
				Id: app.ID[:], Url: app.HealthcheckUrl, IntervalSeconds: app.HealthcheckInterval,
				Threshold: app.HealthcheckThreshold,
			})
		}
	}
	return nil
}

func (r *rpc) Connect(
	ctx context.Context, stream *connect.BidiStream[agentpb.AgentMessage, agentpb.ServerMessage],
) error {
	id, err := r.who(stream.Peer())
	if err != nil {
		return err
	}
	w, err := rpcwire.From(ctx)
	if err != nil {
		return err
	}
	if err := w.AwaitRead(helloTimeout); err != nil {
		return connect.NewError(connect.CodeInternal, err)
	}
	first, err := stream.Receive()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello.GetProtocolVersion() != protocolVersion {
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("protocol version %d expected, not %d: start the workspace again to update its agent",
			protocolVersion, hello.GetProtocolVersion()))
	}
	c := &connection{
		agent: id, wire: w, silence: r.opts.Silence, opened: time.Now(),
		lastSeen: func() time.Time { return r.opts.Mesh.LastSeen(id) },
		shutdown: make(chan string, 1), manifest: notify.NewWake(),
	}
	returning, err := r.open(c)
	if err != nil {
		return err
	}
	defer r.conns.streams.Done()
	if err := r.connected(ctx, c, hello, returning); err != nil {
		r.forget(c)
		return r.fail(ctx, id, "store connection", err)
	}
	defer r.opts.Mesh.AgentArrived(id)()
	r.log.DebugContext(ctx, "agent connected", "agent", id)
	err = c.serve(ctx, stream, func(hello *agentpb.Hello) error { return r.described(ctx, c, hello) })
	r.log.DebugContext(ctx, "agent's stream ended", "agent", id, "reason", err)
	if r.forget(c) {
		r.disconnected(ctx, c)
	}
	return err
}

// compare asks the agent to fetch its manifest if it has that of another build, or has an incomplete one and the build
// has described it completely.
func (c *connection) compare(hello *agentpb.Hello, build int32, complete bool) {
	if hello.GetIncarnation() != 0 && hello.GetIncarnation() != uint64(build) || hello.GetManifestPending() &&
		complete {
		c.announceManifest()
	}
}

// described stores what an agent reports about itself when it has a newer manifest.
func (s *Service) described(ctx context.Context, c *connection, hello *agentpb.Hello) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	a, err := s.opts.DB.GetAgent(ctx, c.agent)
	if err != nil {
		return err
	}
	c.compare(hello, a.BuildNumber, a.Complete)
	if hello.GetManifestPending() {
		return nil
	}
	if err := s.tookManifest(ctx, c.agent, a.AwaitedBuild, hello); err != nil {
		return err
	}
	return s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		n, err := q.UpdateAgentHello(ctx, dbsqlc.UpdateAgentHelloParams{
			ID: c.agent, ExpandedDirectory: short(hello.GetExpandedDirectory(), maxText),
		})
		return announceChange(ctx, q, c.agent, n, err)
	})
}

// tookManifest lets the owner of a claimed workspace connect to an agent that has the manifest of the awaited build,
// which is the claim's.
func (s *Service) tookManifest(ctx context.Context, agent uuid.UUID, awaited *int32, hello *agentpb.Hello) error {
	if awaited == nil || hello.GetManifestPending() {
		return nil
	}
	return s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		n, err := q.TakeManifest(ctx, dbsqlc.TakeManifestParams{
			ID: agent, BuildNumber: int32(min(hello.GetIncarnation(), math.MaxInt32)),
		})
		return announceChange(ctx, q, agent, n, err)
	})
}

// AwaitManifests waits until a claimed workspace's agents are ready for their new owner, at most for the given time.
func (s *Service) AwaitManifests(ctx context.Context, limit time.Duration, ids ...uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	changed := notify.NewWake()
	for _, id := range ids {
		defer s.opts.PubSub.Subscribe("agent:"+id.String(), func(string) { changed.Poke() })()
	}
	for {
		n, err := s.opts.DB.CountAwaited(ctx, ids)
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// announceChange announces an agent after a statement that changed n rows of it.
func announceChange(ctx context.Context, q *dbsqlc.Queries, agent uuid.UUID, n int64, err error) error {
	if err != nil || n == 0 {
		return err
	}
	a, err := q.GetAgentOwner(ctx, agent)
	if err != nil {
		return err
	}
	return announce(ctx, q, agent, &a.WorkspaceID)
}

// open makes c the agent's connection and ends a former one. returning is true for the agent's first connection since
// the server's start. After success the caller must call conns.streams.Done.
func (s *Service) open(c *connection) (returning bool, err error) {
	s.conns.Lock()
	if s.conns.closing {
		s.conns.Unlock()
		return false, errStopping
	}
	s.conns.streams.Add(1)
	before := s.conns.byAgent[c.agent]
	s.conns.byAgent[c.agent] = c
	if s.conns.returned != nil && !s.conns.returned[c.agent] {
		s.conns.returned[c.agent] = true
		returning = true
	}
	s.conns.Unlock()
	if before != nil {
		before.end(errReplaced)
	}
	return returning, nil
}

// forget removes c unless another connection has replaced it. It reports whether the agent is gone as a result, and not
// only disconnected because the server stops.
func (s *Service) forget(c *connection) bool {
	s.conns.Lock()
	defer s.conns.Unlock()
	if s.conns.byAgent[c.agent] != c {
		return false
	}
	delete(s.conns.byAgent, c.agent)
	return !s.conns.closing
}

// subsystems are what the API may say that runs a workspace beside its agent.
var subsystems = []string{"envbox", "envbuilder", "exectrace"}

// knownSubsystems returns those of an agent's words that the API knows, sorted and once each.
func knownSubsystems(said []string) []string {
	known := []string{}
	for _, name := range subsystems {
		if slices.Contains(said, name) {
			known = append(known, name)
		}
	}
	return known
}

// connected stores that the agent is connected. If an unchanged agent comes back after a restart of the server, the
// database already says so.
func (s *Service) connected(ctx context.Context, c *connection, hello *agentpb.Hello, returning bool) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	admitted, err := s.opts.DB.GetAdmittedAgent(ctx, dbsqlc.GetAdmittedAgentParams{ID: &c.agent, Stopping: true})
	if err != nil {
		return err
	}
	// The build may have progressed since the agent got its manifest. From here on the agent receives each change.
	c.compare(hello, admitted.BuildNumber, admitted.Complete)
	if err := s.tookManifest(ctx, c.agent, admitted.AwaitedBuild, hello); err != nil {
		return err
	}
	if admitted.Stopping { // it was offline when the agents were asked
		c.askShutdown("the workspace is stopping")
	}
	p := dbsqlc.AgentConnectedParams{
		ID: c.agent, Version: short(hello.GetVersion(), maxText), ApiVersion: short(hello.GetApiVersion(), maxText),
		OperatingSystem:   short(hello.GetOperatingSystem(), maxText),
		Architecture:      short(hello.GetArchitecture(), maxText),
		ExpandedDirectory: short(hello.GetExpandedDirectory(), maxText), At: now(), ServerID: s.opts.ServerID,
		Subsystems: knownSubsystems(hello.GetSubsystems()),
	}
	if returning {
		began, err := s.opts.DB.AgentReturned(ctx, dbsqlc.AgentReturnedParams{
			ID: c.agent, ServerID: s.opts.ServerID, StartedAt: s.startedAt, Version: p.Version,
			ApiVersion:      p.ApiVersion,
			OperatingSystem: p.OperatingSystem, Architecture: p.Architecture, ExpandedDirectory: p.ExpandedDirectory,
			Subsystems: p.Subsystems,
		})
		if err == nil {
			c.began = *began
			return nil
		}
		if !database.IsNotFound(err) {
			return err
		}
	}
	c.began = p.At
	return s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		n, err := q.AgentConnected(ctx, p)
		if err != nil {
			return err
		}
		if n == 0 {
			return pgx.ErrNoRows // revoked meanwhile
		}
		return announce(ctx, q, c.agent, &admitted.WorkspaceID)
	})
}

// disconnected stores that the agent is gone. The stream's context may have ended.
func (s *Service) disconnected(ctx context.Context, c *connection) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
	defer cancel()
	err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		n, err := q.AgentDisconnected(ctx, dbsqlc.AgentDisconnectedParams{
			ID: c.agent, ConnectedAt: c.began, At: now(), ServerID: s.opts.ServerID,
		})
		return announceChange(ctx, q, c.agent, n, err)
	})
	if err != nil {
		s.log.WarnContext(ctx, "cannot store agent's disconnection", "agent", c.agent, "err", err)
	}
}

var lifecycles = map[agentpb.LifecycleState]sdk.AgentLifecycle{
	agentpb.LifecycleState_LIFECYCLE_STATE_CREATED:          sdk.LifecycleCreated,
	agentpb.LifecycleState_LIFECYCLE_STATE_STARTING:         sdk.LifecycleStarting,
	agentpb.LifecycleState_LIFECYCLE_STATE_START_TIMEOUT:    sdk.LifecycleStartTimeout,
	agentpb.LifecycleState_LIFECYCLE_STATE_START_ERROR:      sdk.LifecycleStartError,
	agentpb.LifecycleState_LIFECYCLE_STATE_READY:            sdk.LifecycleReady,
	agentpb.LifecycleState_LIFECYCLE_STATE_SHUTTING_DOWN:    sdk.LifecycleShuttingDown,
	agentpb.LifecycleState_LIFECYCLE_STATE_SHUTDOWN_TIMEOUT: sdk.LifecycleShutdownTimeout,
	agentpb.LifecycleState_LIFECYCLE_STATE_SHUTDOWN_ERROR:   sdk.LifecycleShutdownError,
	agentpb.LifecycleState_LIFECYCLE_STATE_OFF:              sdk.LifecycleOff,
}

func (r *rpc) Lifecycle(
	ctx context.Context, req *connect.Request[agentpb.LifecycleRequest],
) (*connect.Response[agentpb.LifecycleResponse], error) {
	id, err := r.who(req.Peer())
	if err != nil {
		return nil, err
	}
	state, ok := lifecycles[req.Msg.GetState()]
	if !ok || !req.Msg.GetChangedAt().IsValid() {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("state and changed_at are required"))
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	at := clampTime(req.Msg.GetChangedAt().AsTime())
	err = r.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		a, err := q.GetAgentManifest(ctx, id) // not for revoked agents
		if err != nil {
			return err
		}
		n, err := q.UpdateAgentLifecycle(ctx, dbsqlc.UpdateAgentLifecycleParams{
			ID: id, LifecycleState: string(state), At: at,
		})
		if err != nil || n == 0 {
			return err
		}
		return announce(ctx, q, id, a.WorkspaceAgent.WorkspaceID)
	})
	if err != nil {
		return nil, r.fail(ctx, id, "store lifecycle", err)
	}
	return connect.NewResponse(&agentpb.LifecycleResponse{}), nil
}

func (r *rpc) ScriptDone(
	ctx context.Context, req *connect.Request[agentpb.ScriptDoneRequest],
) (*connect.Response[agentpb.ScriptDoneResponse], error) {
	id, err := r.who(req.Peer())
	if err != nil {
		return nil, err
	}
	script, err := uuid.FromBytes(req.Msg.GetScriptId())
	if err != nil || !req.Msg.GetStartedAt().IsValid() || !req.Msg.GetEndedAt().IsValid() {
		return nil, connect.NewError(connect.CodeInvalidArgument,
			errors.New("script_id, started_at and ended_at are required"))
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	started, ended, code := clampTime(req.Msg.GetStartedAt().AsTime()), clampTime(req.Msg.GetEndedAt().AsTime()), req.Msg.GetExitCode()
	n, err := r.opts.DB.FinishScript(ctx, dbsqlc.FinishScriptParams{
		ID: script, AgentID: id, ExitCode: &code, TimedOut: req.Msg.GetTimedOut(), StartedAt: &started, EndedAt: &ended,
	})
	if err == nil && n == 0 {
		err = pgx.ErrNoRows
	}
	if err != nil {
		return nil, r.fail(ctx, id, "store script's end", err)
	}
	return connect.NewResponse(&agentpb.ScriptDoneResponse{}), nil
}

// fail converts an error for an agent. Objects that no longer exist do not belong to the agent.
func (r *rpc) fail(ctx context.Context, id uuid.UUID, doing string, err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return connect.NewError(connect.CodePermissionDenied,
			errors.New(doing+": the workspace does not run this agent, or has no such part"))
	}
	if f := fault.As(err); f != nil && f.Code == fault.Unavailable {
		return connect.NewError(connect.CodeUnavailable, errors.New(f.Message))
	}
	if errors.Is(ctx.Err(), context.Canceled) { // the agent no longer waits
		return connect.NewError(connect.CodeCanceled, ctx.Err())
	}
	r.log.ErrorContext(ctx, "agent's call failed", "agent", id, "what", doing, "err", err)
	return connect.NewError(connect.CodeUnavailable, errors.New("the server cannot store this now: try again"))
}

// short truncates text to a number of bytes and makes it valid for PostgreSQL.
func short(s string, bytes int) string { return database.Text(strings.Clone(s[:min(len(s), bytes)])) }

// clampTime moves times in the future to now, so that a fast clock of an agent does not outdate later changes.
func clampTime(t time.Time) time.Time {
	if n := now(); t.After(n) {
		return n
	}
	return t.Truncate(time.Microsecond)
}
