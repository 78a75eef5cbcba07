package agents

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/hostname"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// Agent identifies the agent that a token belongs to.
type Agent struct {
	ID          uuid.UUID // also its mesh id
	WorkspaceID uuid.UUID
	OwnerID     uuid.UUID
	Name        string // owner/workspace.agent, for people
}

// AuthenticateAgent returns the agent of a token. It admits agents of a start that is running or has succeeded, and
// that no later build has ended, and agents of a workspace that is being stopped or deleted until they have run their
// stop scripts. It returns fault.Unavailable, upon which an agent tries again, when the database is unavailable, for
// agents that wait for the next start of their workspace, and for an unknown token while a workspace is being started:
// an agent may be faster than the report that it exists. For all others it returns fault.Unauthenticated.
func (s *Service) AuthenticateAgent(ctx context.Context, token secret.Token) (Agent, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	row, err := s.opts.DB.GetAdmittedAgent(ctx, dbsqlc.GetAdmittedAgentParams{TokenHash: token.Hash(), Stopping: true})
	if database.IsNotFound(err) {
		if err := s.mayComeLater(ctx, token); err != nil {
			return Agent{}, err
		}
		// A build that ran when it started the agent, and runs no more, has reported it.
		row, err = s.opts.DB.GetAdmittedAgent(ctx, dbsqlc.GetAdmittedAgentParams{
			TokenHash: token.Hash(), Stopping: true,
		})
	}
	if database.IsNotFound(err) {
		return Agent{}, fault.New(fault.Unauthenticated, "This agent token is not valid.").
			WithDetail("The workspace is stopped or deleted, or was rebuilt with another token.")
	}
	if err == nil && row.Unsettled {
		err = s.opts.DB.SettleReturnToken(ctx, dbsqlc.SettleReturnTokenParams{ID: row.ID, TokenHash: token.Hash()})
	}
	if err != nil {
		return Agent{}, fault.New(fault.Unavailable, "The agent's token cannot be checked now: %w", err)
	}
	return Agent{
		ID: row.ID, WorkspaceID: row.WorkspaceID, OwnerID: row.OwnerID,
		Name: row.OwnerName + "/" + row.WorkspaceName + "." + row.Name,
	}, nil
}

// mayComeLater returns fault.Unavailable if an unknown token may become that of an agent, and nil if it is so already
// or never will be.
func (s *Service) mayComeLater(ctx context.Context, token secret.Token) error {
	waiting, err := s.opts.DB.IsAgentWaiting(ctx, token.Hash())
	if err != nil {
		return fault.New(fault.Unavailable, "The agent's token cannot be checked now: %w", err)
	}
	if waiting {
		return fault.New(fault.Unavailable, "The workspace is not running.").
			WithDetail("Its next start admits this agent.")
	}
	starting, err := s.opts.DB.IsStartRunning(ctx)
	if err != nil {
		return fault.New(fault.Unavailable, "The agent's token cannot be checked now: %w", err)
	}
	if starting {
		return fault.New(fault.Unavailable, "This agent token is not known yet.").
			WithDetail("A running build may still report it.")
	}
	return nil
}

// MayConnect reports whether a user may open connections to an agent. The owner of its workspace may, and the users
// with whom it is shared, while the workspace runs and their token's scope allows it. All other users, including
// administrators, get fault.NotFound; if the workspace does not run, the former get fault.Conflict. While the agent of
// a claimed workspace does not have its new owner's manifest, they get fault.Unavailable.
func (s *Service) MayConnect(ctx context.Context, actor rbac.Actor, agentID uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	a, err := s.opts.DB.GetReachableAgent(ctx, dbsqlc.GetReachableAgentParams{ID: agentID, UserID: actor.UserID})
	if database.IsNotFound(err) {
		return errNoAgent()
	}
	if err != nil {
		return fmt.Errorf("look up agent: %w", err)
	}
	if !actor.Covers(rbac.Connect, rbac.Of(rbac.Agent, uuid.Nil).WithID(a.WorkspaceID)) {
		return errNoAgent()
	}
	if _, err := s.opts.DB.GetAdmittedAgent(ctx, dbsqlc.GetAdmittedAgentParams{ID: &agentID}); err != nil {
		if database.IsNotFound(err) {
			if a.ParentID != nil {
				if _, err := s.opts.DB.GetAdmittedAgent(ctx, dbsqlc.GetAdmittedAgentParams{
					ID: a.ParentID,
				}); err == nil {
					return fault.New(fault.Conflict, "The dev container %q of the workspace %q is not running.", a.Name, a.WorkspaceName).
						WithDetail("See why with: coder show %s", shell.POSIX(a.OwnerName+"/"+a.WorkspaceName))
				}
			}
			return fault.New(fault.Conflict, "The workspace %q is not running.", a.WorkspaceName).
				WithDetail("Start it with: coder start %s", shell.POSIX(a.OwnerName+"/"+a.WorkspaceName))
		}
		return fmt.Errorf("look up agent's build: %w", err)
	}
	if a.AwaitedBuild != nil {
		return fault.New(fault.Unavailable, "The agent %q of the workspace %q is still being prepared for its owner.",
			a.Name, a.WorkspaceName).WithDetail("Try again in a moment.")
	}
	return nil
}

// VisaKey returns the key with which visas for an agent are signed. It returns the fault NotFound if there is no such
// agent, or it has no token.
func (s *Service) VisaKey(ctx context.Context, agentID uuid.UUID) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	key, err := s.opts.DB.GetAgentKey(ctx, agentID)
	switch {
	case database.IsNotFound(err) || err == nil && len(key) == 0:
		return nil, rbac.NotFound(rbac.Agent)
	case err != nil:
		return nil, fmt.Errorf("read agent's key: %w", err)
	}
	return key, nil
}

// LoginBlocked reports whether logins to an agent wait for its start scripts.
func (s *Service) LoginBlocked(ctx context.Context, agentID uuid.UUID) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	blocked, err := s.opts.DB.IsLoginBlocked(ctx, agentID)
	if err != nil {
		return false, fmt.Errorf("look up start scripts: %w", err)
	}
	return blocked, nil
}

// ByName returns the agent that a user means by [owner/]workspace[.agent]: the agent of that name, or the only agent
// outside dev containers, in one of the user's own workspaces, or with an owner, in one that is shared with the user.
// It returns fault.NotFound if there is no such agent, or if several could be meant. MayConnect decides whether the
// user may connect to it.
func (s *Service) ByName(ctx context.Context, userID uuid.UUID, name string) (uuid.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	name = database.Visible(name)
	owner, rest, named := strings.Cut(name, "/")
	if !named {
		owner, rest = "", name
	}
	if owner == sdk.Me {
		owner = ""
	}
	workspace, agent, _ := strings.Cut(rest, ".")
	ids, err := s.opts.DB.ListAgentIDsByName(ctx, dbsqlc.ListAgentIDsByNameParams{
		UserID: userID, OwnerName: owner, WorkspaceName: workspace, AgentName: agent,
	})
	if err != nil {
		return uuid.Nil, fmt.Errorf("look up agent by name: %w", err)
	}
	if len(ids) != 1 {
		return uuid.Nil, errNoAgent()
	}
	return ids[0], nil
}

// Admitted returns those of the given agents whose workspaces run.
func (s *Service) Admitted(ctx context.Context, ids ...uuid.UUID) ([]uuid.UUID, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return s.admitted(ctx, ids, false)
}

// admitted returns those of the given agents that may be on the mesh now: with stopping, also those that run their stop
// scripts.
func (s *Service) admitted(ctx context.Context, ids []uuid.UUID, stopping bool) ([]uuid.UUID, error) {
	admitted, err := s.opts.DB.ListAdmittedAgents(ctx, dbsqlc.ListAdmittedAgentsParams{Ids: ids, Stopping: stopping})
	if err != nil {
		return nil, fmt.Errorf("list admitted agents: %w", err)
	}
	return admitted, nil
}

// Reachable returns those of the agents that a user may connect to while they run; see MayConnect.
func (s *Service) Reachable(ctx context.Context, userID uuid.UUID, ids ...uuid.UUID) ([]uuid.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	reachable, err := s.opts.DB.ListReachableAgents(ctx, dbsqlc.ListReachableAgentsParams{UserID: userID, Ids: ids})
	if err != nil {
		return nil, fmt.Errorf("list reachable agents: %w", err)
	}
	return reachable, nil
}

// Host returns the name of an agent as a host, for a user who may connect to it while it runs: main.dev.ada.coder. For
// others it returns fault.NotFound.
func (s *Service) Host(ctx context.Context, userID, agentID uuid.UUID) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	a, err := s.opts.DB.GetReachableAgent(ctx, dbsqlc.GetReachableAgentParams{ID: agentID, UserID: userID})
	if database.IsNotFound(err) {
		return "", errNoAgent()
	}
	if err != nil {
		return "", fmt.Errorf("look up agent: %w", err)
	}
	return hostname.Of(a.OwnerName, a.WorkspaceName, a.Name), nil
}

func errNoAgent() error { return rbac.NotFound(rbac.Agent) }

// AwaitStart gives an agent that runs its stop scripts a token with which the next start admits it again.
func (r *rpc) AwaitStart(
	ctx context.Context, req *connect.Request[agentpb.AwaitStartRequest],
) (*connect.Response[agentpb.AwaitStartResponse], error) {
	removed := connect.NewError(connect.CodeUnauthenticated,
		errors.New("await the next start: the workspace has stopped already"))
	id, err := r.who(req.Peer())
	if err != nil {
		return nil, removed // it was an agent when it connected
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	token := secret.Token(rand.Text())
	if _, err = r.opts.DB.GetAdmittedAgent(ctx, dbsqlc.GetAdmittedAgentParams{ID: &id, Stopping: true}); err == nil {
		var n int64
		if n, err = r.opts.DB.SetReturnToken(ctx, dbsqlc.SetReturnTokenParams{
			ID: id, ReturnTokenHash: token.Hash(),
		}); err == nil && n == 0 {
			err = pgx.ErrNoRows
		}
	}
	if database.IsNotFound(err) {
		if a, lookup := r.opts.DB.GetAgent(ctx, id); lookup == nil && a.TokenHash == nil {
			return nil, removed
		}
	}
	if err != nil {
		return nil, r.fail(ctx, id, "await the next start", err)
	}
	return connect.NewResponse(&agentpb.AwaitStartResponse{Token: token.Reveal()}), nil
}

// Shutdown asks the agents of a workspace to run their stop scripts, when the transaction commits.
func Shutdown(ctx context.Context, q *dbsqlc.Queries, workspace uuid.UUID) error {
	ids, err := q.ListWorkspaceAgentIDs(ctx, &workspace)
	if err != nil {
		return fmt.Errorf("list agents: %w", err)
	}
	for _, id := range ids {
		if err := q.NotifyAgentShutdown(ctx, id); err != nil {
			return fmt.Errorf("notify agent: %w", err)
		}
	}
	return nil
}

// Revoke ends all agents of a workspace except those in kept: once the transaction commits, their tokens are invalid,
// and every server is notified to take them off the mesh.
func Revoke(ctx context.Context, q *dbsqlc.Queries, workspace uuid.UUID, kept []uuid.UUID) error {
	if kept == nil {
		kept = []uuid.UUID{}
	}
	ids, err := q.RevokeAgents(ctx, dbsqlc.RevokeAgentsParams{WorkspaceID: &workspace, Kept: kept})
	if err != nil {
		return fmt.Errorf("revoke agents: %w", err)
	}
	if err := q.StopDevcontainers(ctx, ids); err != nil {
		return fmt.Errorf("stop dev containers: %w", err)
	}
	for _, id := range ids {
		if err := ended(ctx, q, id, "the workspace stopped"); err != nil {
			return err
		}
	}
	return nil
}

// ended tells every server and page that an agent's token has become invalid, and ends its connections in the log.
func ended(ctx context.Context, q *dbsqlc.Queries, id uuid.UUID, reason string) error {
	if _, err := q.EndConnections(ctx, dbsqlc.EndConnectionsParams{AgentID: id, Reason: reason, Kept: []uuid.UUID{}}); err != nil {
		return fmt.Errorf("end connections in the log: %w", err)
	}
	if err := errors.Join(q.NotifyAgentRevoked(ctx, id), q.NotifyAgent(ctx, id)); err != nil {
		return fmt.Errorf("notify agent: %w", err)
	}
	return nil
}
