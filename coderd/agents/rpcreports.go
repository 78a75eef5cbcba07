package agents

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxAppStates bounds the apps in one report.
const maxAppStates = 256

var healths = map[agentpb.Health]sdk.AppHealth{
	agentpb.Health_HEALTH_INITIALIZING: sdk.AppInitializing,
	agentpb.Health_HEALTH_HEALTHY:      sdk.AppHealthy,
	agentpb.Health_HEALTH_UNHEALTHY:    sdk.AppUnhealthy,
}

// AppHealth stores the health of apps. It ignores everything except the agent's own apps with a health check.
func (r *rpc) AppHealth(
	ctx context.Context, req *connect.Request[agentpb.AppHealthRequest],
) (*connect.Response[agentpb.AppHealthResponse], error) {
	id, err := r.who(req.Peer())
	if err != nil {
		return nil, err
	}
	p := dbsqlc.UpdateAppHealthParams{AgentID: id, Ids: []uuid.UUID{}, Healths: []string{}}
	for _, app := range req.Msg.GetApps() {
		appID, err := uuid.FromBytes(app.GetId())
		health, ok := healths[app.GetHealth()]
		if err != nil || !ok || len(p.Ids) == maxAppStates {
			return nil, connect.NewError(connect.CodeInvalidArgument,
				errors.New("every app needs an id and a health, and there are at most 256"))
		}
		p.Ids, p.Healths = append(p.Ids, appID), append(p.Healths, string(health))
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err = r.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		a, err := q.GetAgentManifest(ctx, id) // not for revoked agents
		if err != nil {
			return err
		}
		changed, err := q.UpdateAppHealth(ctx, p)
		if err != nil || len(changed) == 0 {
			return err
		}
		return announce(ctx, q, id, a.WorkspaceAgent.WorkspaceID)
	})
	if err != nil {
		return nil, r.fail(ctx, id, "store health of apps", err)
	}
	return connect.NewResponse(&agentpb.AppHealthResponse{}), nil
}

// Stats keeps the counts in memory. It marks the workspace as used, and writes that at most once a minute.
func (r *rpc) Stats(
	ctx context.Context, req *connect.Request[agentpb.StatsRequest],
) (*connect.Response[agentpb.StatsResponse], error) {
	id, err := r.who(req.Peer())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	a, err := r.opts.DB.GetAgentManifest(ctx, id) // not for revoked agents
	if err != nil {
		return nil, r.fail(ctx, id, "store use", err)
	}
	if c := r.connection(id); c != nil {
		c.stats.Store(req.Msg)
	}
	workspace := *a.WorkspaceAgent.WorkspaceID
	used := req.Msg.GetSsh()+req.Msg.GetVscode()+req.Msg.GetJetbrains()+req.Msg.GetReconnectingPty()+req.Msg.GetPortForward() > 0
	err = r.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		changed, err := q.TouchWorkspace(ctx, workspace)
		if err != nil {
			return err
		}
		if used {
			latest, err := q.GetLatestBuild(ctx, workspace)
			if err != nil {
				return err
			}
			bumped, err := q.BumpWorkspaceDeadline(ctx, latest.ID)
			if err != nil {
				return err
			}
			changed += bumped
		}
		if changed == 0 {
			return nil
		}
		return q.NotifyWorkspace(ctx, workspace)
	})
	if err != nil {
		return nil, r.fail(ctx, id, "store use", err)
	}
	return connect.NewResponse(&agentpb.StatsResponse{}), nil
}
