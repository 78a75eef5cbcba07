package agents

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/bootstrap"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	logPage    = 1000             // lines per query, and per message of a followed log
	lookAnyway = 15 * time.Second // how long a lost notification can go unnoticed
)

// Routes registers the agents' routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	mux.Handle("GET /api/v2/init-script/{os}/{arch}", rbac.Public, s.getInitScript)
	mux.Handle("GET /api/v2/workspaceagents/{workspaceagent}", rbac.Needs(rbac.Read, rbac.Agent), s.get)
	mux.Handle("GET /api/v2/workspaceagents/{workspaceagent}/connection", rbac.Needs(rbac.Connect, rbac.Agent),
		s.getConnection)
	mux.Handle("GET /api/v2/workspaceagents/{workspaceagent}/logs", rbac.Needs(rbac.Read, rbac.Agent), s.getLogs)
	mux.Handle("POST /api/v2/workspaceagents/me/startup-problem", rbac.Public, s.postStartupProblem,
		audit.Exempt("an agent reports why it did not start: no user acts"),
		httpapi.Uncounted("workspaces start together, many from one address")) // authenticated by the agent's token in the body
	mux.Handle("POST /api/v2/workspaceagents/aws-instance-identity", rbac.Public, s.postAWSIdentity,
		audit.Exempt("a machine proves who it is: no user acts"),
		httpapi.Uncounted("machines start together, many from one address")) // authenticated by the cloud's signature
	mux.Handle("POST /api/v2/workspaceagents/azure-instance-identity", rbac.Public, s.postAzureIdentity,
		audit.Exempt("a machine proves who it is: no user acts"),
		httpapi.Uncounted("machines start together, many from one address"))
	mux.Handle("POST /api/v2/workspaceagents/google-instance-identity", rbac.Public, s.postGoogleIdentity,
		audit.Exempt("a machine proves who it is: no user acts"),
		httpapi.Uncounted("machines start together, many from one address"))
	// Programs such as coder-logstream-kube and envbuilder have the agent's token, as a session's.
	mux.Handle("POST /api/v2/workspaceagents/me/log-source", rbac.Public, s.postLogSource,
		audit.Exempt("a program reports on a workspace: no user acts"),
		httpapi.Uncounted("one program reports on all workspaces of a cluster"))
	mux.Handle("PATCH /api/v2/workspaceagents/me/logs", rbac.Public, s.patchLogs,
		audit.Exempt("a program reports on a workspace: no user acts"),
		httpapi.Uncounted("one program reports on all workspaces of a cluster"))
	mux.Handle("GET /api/v2/workspaceagents/me/rpc", rbac.Public, s.programRPC,
		httpapi.Uncounted("one program reports on all workspaces of a cluster"))
	mux.Handle("GET /api/v2/workspaceagents/me/external-auth", rbac.Public, s.getExternalAuth,
		httpapi.Uncounted("programs of many workspaces ask from one address"))
	mux.Handle("GET /api/v2/workspaceagents/me/archives/{archive}", rbac.Public, s.getArchive,
		httpapi.Uncounted("workspaces start together, many from one address"))
	mux.Handle("GET /api/v2/workspaceagents/{workspaceagent}/pty", rbac.Needs(rbac.Connect, rbac.Agent), s.terminal)
	mux.Handle("GET /api/v2/workspaceagents/{workspaceagent}/listening-ports", rbac.Needs(rbac.Connect, rbac.Agent),
		s.listeningPorts)
	mux.Handle("GET /api/v2/workspaceagents/{workspaceagent}/containers", rbac.Needs(rbac.Read, rbac.Agent),
		s.listContainers)
	mux.Handle("GET /api/v2/workspaceagents/{workspaceagent}/containers/watch", rbac.Needs(rbac.Read, rbac.Agent),
		s.watchContainers)
	mux.Handle("POST /api/v2/workspaceagents/{workspaceagent}/containers/devcontainers/{devcontainer}/recreate",
		rbac.Needs(rbac.Connect, rbac.Agent),
		s.recreateDevcontainer, audit.On(audit.Write, audit.Workspace))
	mux.Handle("DELETE /api/v2/workspaceagents/{workspaceagent}/containers/devcontainers/{devcontainer}",
		rbac.Needs(rbac.Connect, rbac.Agent),
		s.removeDevcontainer, audit.On(audit.Write, audit.Workspace))
	mux.Handle("GET /api/v2/workspaceagents/{workspaceagent}/watch-metadata", rbac.Needs(rbac.Read, rbac.Agent),
		s.watchMetadata)
	mux.Handle("GET /api/v2/workspaceagents/{workspaceagent}/watch-metadata-ws", rbac.Needs(rbac.Read, rbac.Agent),
		s.watchMetadataWebsocket)
	s.fileRoutes(mux)
}

// object returns the agent as an object of permissions.
func object(a dbsqlc.GetAgentOwnerRow) rbac.Object {
	return rbac.Of(rbac.Agent, a.OwnerID).In(a.OrganizationID).SharedWith(a.Sharing).WithID(a.WorkspaceID)
}

// find returns the agent in the path if the actor may perform the action on it.
func (s *Service) find(r *http.Request, action rbac.Action) (dbsqlc.GetAgentOwnerRow, error) {
	id, err := httpapi.PathUUID(r, "workspaceagent")
	if err != nil {
		return dbsqlc.GetAgentOwnerRow{}, err
	}
	httpapi.AddGuard(r.Context(), func(ctx context.Context, actor rbac.Actor) error {
		_, err := s.allowed(ctx, actor, id, action)
		return err
	})
	return s.allowed(r.Context(), httpapi.ActorFrom(r.Context()), id, action)
}

// allowed returns an agent if the actor may perform the action on it.
func (s *Service) allowed(
	ctx context.Context, actor rbac.Actor, id uuid.UUID, action rbac.Action,
) (dbsqlc.GetAgentOwnerRow, error) {
	a, err := s.opts.DB.GetAgentOwner(ctx, id)
	if database.IsNotFound(err) {
		return a, errNoAgent()
	}
	if err != nil {
		return a, fmt.Errorf("look up agent: %w", err)
	}
	return a, actor.May(action, object(a))
}

func (s *Service) get(w http.ResponseWriter, r *http.Request) error {
	owner, err := s.find(r, rbac.Read)
	if err != nil {
		return err
	}
	a, err := s.opts.DB.GetAgentWithStatus(r.Context(), owner.ID)
	if err != nil {
		return fmt.Errorf("read agent: %w", err)
	}
	list, err := s.show(r.Context(), s.opts.DB.Queries, []shown{shown(a)}, func(dbsqlc.WorkspaceAgent) Place {
		return Place{Workspace: owner.WorkspaceName, Owner: owner.OwnerName}
	})
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, list[0])
}

// getInitScript answers with the script that starts an agent on a machine, which gets the agent's token in its
// environment. It is the same for all agents, and contains no secret.
func (s *Service) getInitScript(w http.ResponseWriter, r *http.Request) error {
	script := bootstrap.Script(r.PathValue("os"), r.PathValue("arch"))
	if script == "" {
		return fault.New(fault.NotFound, "There is no agent for %s on %s.", database.Text(r.PathValue("os")), database.Text(r.PathValue("arch"))).
			WithDetail("Agents run on linux, on amd64, arm64 and armv7, and on darwin and windows, on amd64 and arm64.")
	}
	script = strings.NewReplacer("${ACCESS_URL}", strings.TrimSuffix(s.opts.AccessURL, "/")+"/", "${AUTH_TYPE}",
		"token").Replace(script)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	_, err := io.WriteString(w, script)
	return err
}

func (s *Service) getConnection(w http.ResponseWriter, r *http.Request) error {
	a, err := s.find(r, rbac.Connect)
	if err != nil {
		return err
	}
	if err := s.MayConnect(r.Context(), httpapi.ActorFrom(r.Context()), a.ID); err != nil {
		return err
	}
	connection := sdk.AgentConnection{
		HostnameSuffix: s.opts.HostnameSuffix, DisableDirectConnections: s.opts.RelayOnly,
	}
	agent, err := s.opts.DB.GetAgent(r.Context(), a.ID)
	if err != nil {
		return fmt.Errorf("read agent: %w", err)
	}
	connected := agent.LastConnectedAt != nil && agent.DisconnectedAt == nil
	if at := agent.ServerID; connected && at != nil && s.opts.Unlinked != nil && s.opts.Unlinked(*at) {
		connection.Server, connection.UnreachableServer = s.opts.ServerID, *at
	}
	return httpapi.Write(w, http.StatusOK, connection)
}

func (s *Service) getLogs(w http.ResponseWriter, r *http.Request) error {
	a, err := s.find(r, rbac.Read)
	if err != nil {
		return err
	}
	after, err := queryID(r, "after", 0)
	if err != nil {
		return err
	}
	before, err := queryID(r, "before", 1<<62)
	if err != nil {
		return err
	}
	if follow, err := httpapi.QueryBool(r, "follow"); err != nil || follow {
		if err != nil {
			return err
		}
		return s.followLogs(w, r, a.ID, after)
	}
	return httpapi.WriteList(w, func() ([]sdk.AgentLog, error) {
		page, err := s.logs(r.Context(), a.ID, after, before)
		if len(page) > 0 {
			after = page[len(page)-1].ID
		}
		return page, err
	})
}

// logs returns the next lines: ids above after and below before, at most one page.
func (s *Service) logs(ctx context.Context, agent uuid.UUID, after, before int64) ([]sdk.AgentLog, error) {
	rows, err := s.opts.DB.ListAgentLogsBefore(ctx, dbsqlc.ListAgentLogsBeforeParams{
		AgentID: agent, After: after, Before: before, PageLimit: logPage,
	})
	if err != nil {
		return nil, fmt.Errorf("list agent's log: %w", err)
	}
	out := make([]sdk.AgentLog, len(rows))
	for i, l := range rows {
		out[i] = sdk.AgentLog{
			ID: l.ID, CreatedAt: l.CreatedAt, Output: l.Output, Level: sdk.LogLevel(l.Level), SourceID: l.LogSourceID,
		}
	}
	return out, nil
}

// streams returns the options of a stream that reports failures to websockets with the given message.
func (s *Service) streams(failed string) httpapi.StreamOptions {
	return httpapi.StreamOptions{Life: s.life, Logger: s.log, Failed: failed}
}

// followLogs sends arrays of lines as they arrive, until the reader leaves or the agent belongs to another build.
func (s *Service) followLogs(w http.ResponseWriter, r *http.Request, agent uuid.UUID, after int64) error {
	first, err := s.opts.DB.GetAgent(r.Context(), agent)
	if err != nil {
		return fmt.Errorf("read agent: %w", err)
	}
	changed := notify.NewWake()
	defer s.opts.PubSub.Subscribe("agent:"+agent.String(), func(string) { changed.Poke() })()
	return httpapi.ServeWebsocket(w, r, s.streams("the log cannot be read now"), func(ctx context.Context, send func(...httpapi.Event) error) error {
		for {
			if after, err = s.sendLogs(ctx, agent, after, send); err != nil {
				return err
			}
			now, err := s.opts.DB.GetAgent(ctx, agent)
			switch {
			case database.IsNotFound(err):
				return httpapi.EndStream("the workspace no longer has this agent")
			case err != nil:
				return fmt.Errorf("read agent: %w", err)
			case now.BuildNumber != first.BuildNumber:
				return httpapi.EndStream("the workspace was rebuilt")
			}
			timer := time.NewTimer(lookAnyway)
			select {
			case <-ctx.Done():
			case <-changed:
			case <-timer.C:
			}
			timer.Stop()
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	})
}

// sendLogs sends the lines after an id and returns the last line's id.
func (s *Service) sendLogs(
	ctx context.Context, agent uuid.UUID, after int64, send func(...httpapi.Event) error,
) (int64, error) {
	for {
		page, err := s.logs(ctx, agent, after, 1<<62)
		if err != nil || len(page) == 0 {
			return after, err
		}
		if err := send(httpapi.Event{Data: page}); err != nil {
			return after, err
		}
		after = page[len(page)-1].ID
	}
}

func queryID(r *http.Request, name string, fallback int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fault.New(fault.Invalid, "The query parameter %s cannot be %q.", name, text).
			WithField(name, "must be the id of a line")
	}
	return n, nil
}
