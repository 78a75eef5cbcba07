package agents

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// devcontainerSource returns the log source for what creates a dev container.
func devcontainerSource(devcontainer uuid.UUID) uuid.UUID {
	return uuid.NewSHA1(devcontainer, []byte("log"))
}

// devcontainers stores an agent's dev containers and the agents that run in them. An agent can only ever have those
// that its template declares.
func (s *storing) devcontainers(
	ctx context.Context, resource, parent uuid.UUID, all []*provisionerpb.Devcontainer, complete bool,
) error {
	ids := []uuid.UUID{}
	for i, c := range all {
		id, err := uuid.FromBytes(c.GetId())
		inside, insideErr := uuid.FromBytes(c.GetAgent().GetId())
		if err != nil || insideErr != nil || id == uuid.Nil || inside == parent {
			s.omit(c.GetAgent().GetPlace(), "The dev container %q is left out: it has no id of its own.",
				database.Text(c.GetAgent().GetName()))
			continue
		}
		if err := s.agent(ctx, resource, i, c.GetAgent(), kin{parent: &parent, complete: complete}); err != nil {
			return fmt.Errorf("store agent of dev container: %w", err)
		}
		stored, err := s.GetAgentForUpdate(ctx, inside)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("read agent of dev container: %w", err)
		}
		if err != nil || stored.ParentID == nil || *stored.ParentID != parent {
			continue // another workspace's, which agent has logged
		}
		source := devcontainerSource(id)
		name := database.Text(c.GetAgent().GetName())
		n, err := s.UpsertLogSource(ctx, dbsqlc.UpsertLogSourceParams{
			ID: source, AgentID: parent, DisplayName: "Dev container " + name, Icon: "/icon/devcontainer.svg",
		})
		if err != nil {
			return fmt.Errorf("upsert log source: %w", err)
		}
		if n > 0 {
			n, err = s.UpsertDevcontainer(ctx, dbsqlc.UpsertDevcontainerParams{
				ID: id, AgentID: parent, SubagentID: inside, LogSourceID: source, Name: name,
				WorkspaceFolder: database.Text(c.GetWorkspaceFolder()), ConfigPath: database.Text(c.GetConfigPath()),
			})
		}
		if err != nil {
			return fmt.Errorf("upsert dev container: %w", err)
		}
		if n == 0 {
			s.omit(c.GetAgent().GetPlace(), "The dev container %q is left out: %s.", name, copied)
			continue
		}
		ids = append(ids, id)
	}
	if err := s.DeleteDevcontainersExcept(ctx, dbsqlc.DeleteDevcontainersExceptParams{
		AgentID: parent, Ids: ids,
	}); err != nil {
		return fmt.Errorf("delete old dev containers: %w", err)
	}
	return nil
}

var devcontainerStates = map[agentpb.DevcontainerStateRequest_State]sdk.DevcontainerStatus{
	agentpb.DevcontainerStateRequest_STATE_STARTING: sdk.DevcontainerStarting,
	agentpb.DevcontainerStateRequest_STATE_RUNNING:  sdk.DevcontainerRunning,
	agentpb.DevcontainerStateRequest_STATE_STOPPED:  sdk.DevcontainerStopped,
	agentpb.DevcontainerStateRequest_STATE_ERROR:    sdk.DevcontainerError,
}

// DevcontainerState stores what an agent reports about one of its own dev containers. The agent in a container that is
// not running ends.
func (r *rpc) DevcontainerState(
	ctx context.Context, req *connect.Request[agentpb.DevcontainerStateRequest],
) (*connect.Response[agentpb.DevcontainerStateResponse], error) {
	id, err := r.who(req.Peer())
	if err != nil {
		return nil, err
	}
	container, err := uuid.FromBytes(req.Msg.GetDevcontainerId())
	status, ok := devcontainerStates[req.Msg.GetState()]
	if err != nil || !ok {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("devcontainer_id and state are required"))
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err = r.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		c, err := q.LockDevcontainer(ctx, dbsqlc.LockDevcontainerParams{ID: container, AgentID: id})
		if err != nil {
			return err
		}
		if err := q.SetDevcontainerState(ctx, dbsqlc.SetDevcontainerStateParams{
			ID: container, Status: string(status), Error: short(req.Msg.GetError(), maxText),
			ContainerID:   short(req.Msg.GetContainerId(), maxText),
			ContainerName: short(req.Msg.GetContainerName(), maxText), Image: short(req.Msg.GetImage(), maxText),
		}); err != nil {
			return err
		}
		if status != sdk.DevcontainerRunning {
			if err := endSubagent(ctx, q, c.SubagentID); err != nil {
				return err
			}
		}
		return announceChange(ctx, q, id, 1, nil)
	})
	if err != nil {
		return nil, r.fail(ctx, id, "store state of dev container", err)
	}
	return connect.NewResponse(&agentpb.DevcontainerStateResponse{}), nil
}

// endSubagent invalidates the token of a dev container's agent, if it has one.
func endSubagent(ctx context.Context, q *dbsqlc.Queries, id uuid.UUID) error {
	n, err := q.RevokeSubagent(ctx, id)
	if err != nil || n == 0 {
		return err
	}
	return ended(ctx, q, id, "the dev container stopped")
}

// AdmitSubagent makes a token for the agent in one of the caller's own dev containers. It ends the agent that had the
// token before.
func (r *rpc) AdmitSubagent(
	ctx context.Context, req *connect.Request[agentpb.AdmitSubagentRequest],
) (*connect.Response[agentpb.AdmitSubagentResponse], error) {
	id, err := r.who(req.Peer())
	if err != nil {
		return nil, err
	}
	container, err := uuid.FromBytes(req.Msg.GetDevcontainerId())
	directory := req.Msg.GetDirectory()
	if err != nil || len(directory) > maxText || directory != "" && !path.IsAbs(directory) {
		return nil, connect.NewError(connect.CodeInvalidArgument,
			errors.New("devcontainer_id is required, and directory must be an absolute path"))
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	token := secret.Token(rand.Text())
	err = r.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		c, err := q.LockDevcontainer(ctx, dbsqlc.LockDevcontainerParams{ID: container, AgentID: id})
		if err != nil {
			return err
		}
		if err := endSubagent(ctx, q, c.SubagentID); err != nil {
			return err
		}
		n, err := q.AdmitSubagent(ctx, dbsqlc.AdmitSubagentParams{
			ID: c.SubagentID, TokenHash: token.Hash(), Directory: database.Text(directory),
		})
		if err != nil {
			return err
		}
		if n == 0 {
			return pgx.ErrNoRows // of an earlier build
		}
		return announceChange(ctx, q, c.SubagentID, 1, nil)
	})
	if err != nil {
		return nil, r.fail(ctx, id, "admit the agent of a dev container", err)
	}
	return connect.NewResponse(&agentpb.AdmitSubagentResponse{Token: token.Reveal()}), nil
}

// devcontainerHealth returns the diagnosis of an agent that runs in a dev container and is not connected.
func devcontainerHealth(c dbsqlc.WorkspaceAgentDevcontainer) sdk.AgentHealth {
	switch sdk.DevcontainerStatus(c.Status) {
	case sdk.DevcontainerStarting:
		return sdk.AgentHealth{Reason: "dev container is starting"}
	case sdk.DevcontainerStopped:
		return sdk.AgentHealth{Reason: "dev container is stopped", Remedy: "Recreate it on the workspace's page."}
	case sdk.DevcontainerError:
		return sdk.AgentHealth{
			Reason: "dev container failed: " + c.Error,
			Remedy: "Read its log on the workspace's page, then recreate it.",
		}
	default: // its agent is about to connect
		return sdk.AgentHealth{Healthy: true}
	}
}

// containers returns an agent's dev containers as the API shows them.
func (s *Service) containers(ctx context.Context, agent uuid.UUID) (sdk.AgentContainers, error) {
	var out sdk.AgentContainers
	rows, err := s.opts.DB.ListDevcontainers(ctx, []uuid.UUID{agent})
	if err != nil {
		return out, fmt.Errorf("list dev containers: %w", err)
	}
	for _, row := range rows {
		if row.AgentID != agent {
			continue
		}
		d := sdk.AgentDevcontainer{
			ID: row.ID, Name: row.Name, WorkspaceFolder: row.WorkspaceFolder, ConfigPath: row.ConfigPath,
			Status: sdk.DevcontainerStatus(row.Status), Error: row.Error,
			SubagentID: row.SubagentID,
		}
		if row.ContainerID != "" {
			d.Container = &sdk.AgentContainer{
				ID: row.ContainerID, CreatedAt: row.CreatedAt, FriendlyName: row.ContainerName, Image: row.Image,
				Running: d.Status == sdk.DevcontainerRunning,
				Status:  row.Status, DevcontainerStatus: d.Status,
			}
			out.Containers = append(out.Containers, *d.Container)
		}
		inside, err := s.opts.DB.GetAgent(ctx, row.SubagentID)
		if err != nil {
			return out, fmt.Errorf("read agent of dev container: %w", err)
		}
		if inside.TokenHash != nil {
			d.Agent = &sdk.AgentDevcontainerAgent{ID: inside.ID, Name: inside.Name, Directory: inside.Directory}
		}
		out.Devcontainers = append(out.Devcontainers, d)
	}
	return out, nil
}

func (s *Service) listContainers(w http.ResponseWriter, r *http.Request) error {
	a, err := s.find(r, rbac.Read)
	if err != nil {
		return err
	}
	out, err := s.containers(r.Context(), a.ID)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// watchContainers sends the list of containers, and again when it has changed.
func (s *Service) watchContainers(w http.ResponseWriter, r *http.Request) error {
	a, err := s.find(r, rbac.Read)
	if err != nil {
		return err
	}
	changed := notify.NewWake()
	defer s.opts.PubSub.Subscribe("agent:"+a.ID.String(), func(string) { changed.Poke() })()
	return httpapi.ServeWebsocket(w, r, s.streams("the containers cannot be read now"), func(ctx context.Context, send func(...httpapi.Event) error) error {
		sent := ""
		for {
			out, err := s.containers(ctx, a.ID)
			if err != nil {
				return err
			}
			text, err := json.Marshal(out)
			if err != nil {
				return fmt.Errorf("encode containers: %w", err)
			}
			if string(text) != sent {
				if err := send(httpapi.Event{Data: out}); err != nil {
					return err
				}
				sent = string(text)
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

func (s *Service) recreateDevcontainer(w http.ResponseWriter, r *http.Request) error {
	if err := s.changeDevcontainer(r, agentpb.ChangeDevcontainerRequest_CHANGE_RECREATE, "recreate_devcontainer"); err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusAccepted, sdk.Response{Message: "The dev container is being recreated."})
}

func (s *Service) removeDevcontainer(w http.ResponseWriter, r *http.Request) error {
	if err := s.changeDevcontainer(r, agentpb.ChangeDevcontainerRequest_CHANGE_REMOVE, "remove_devcontainer"); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// changeDevcontainer asks the agent to change a dev container of its own. Users who may open a shell in the
// workspace could do the same there.
func (s *Service) changeDevcontainer(
	r *http.Request, change agentpb.ChangeDevcontainerRequest_Change, action string,
) error {
	a, err := s.reachable(r)
	if err != nil {
		return err
	}
	id, err := httpapi.PathUUID(r, "devcontainer")
	if err != nil {
		return err
	}
	rows, err := s.opts.DB.ListDevcontainers(r.Context(), []uuid.UUID{a.ID})
	if err != nil {
		return fmt.Errorf("list dev containers: %w", err)
	}
	name := ""
	for _, row := range rows {
		if row.ID == id && row.AgentID == a.ID {
			name = row.Name
		}
	}
	if name == "" {
		return fault.New(fault.NotFound, "The agent %q has no such dev container.", a.Name)
	}
	client, closeIt := s.ask(a.ID)
	defer closeIt()
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	if _, err := client.ChangeDevcontainer(ctx, connect.NewRequest(&agentpb.ChangeDevcontainerRequest{
		DevcontainerId: id[:], Change: change,
	})); err != nil {
		if connect.CodeOf(err) == connect.CodeFailedPrecondition {
			return fault.New(fault.Conflict, "The agent %q has not started the dev container %q yet.", a.Name, name).
				WithDetail("It starts its dev containers after its start scripts have ended.")
		}
		return askFault(err)
	}
	return s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		return audit.Record(r.Context(), q, audit.Entry{
			ID: a.WorkspaceID, Name: a.WorkspaceName, Organization: a.OrganizationID,
			Fields: map[string]any{"action": action, "devcontainer": name},
		})
	})
}
