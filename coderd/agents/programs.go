package agents

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/credential"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Programs that are no agents add to an agent's log with its token: coder-logstream-kube reports what Kubernetes does
// with the workspace's pod, envbuilder how it builds the workspace's image.

const (
	maxPrograms     = 16      // named log sources that programs add to an agent
	maxProgramLogs  = 2 << 20 // bytes of a request with lines
	maxProgramName  = 64      // bytes of a source's name
	maxProgramIcon  = 256     // bytes of a source's icon
	unnamedPrograms = "Other programs"
)

// programSource returns the log source of a program of an agent. Programs choose their ids, and some use the same for
// all agents.
func programSource(agent, id uuid.UUID) uuid.UUID {
	return uuid.NewSHA1(agent, append([]byte("program/"), id[:]...))
}

// program authenticates a program by the token of its agent. It returns fault.Forbidden if the workspace's owner is not
// active.
func (s *Service) program(r *http.Request) (Agent, error) {
	token, _ := credential.Of(r)
	if token == "" {
		return Agent{}, fault.New(fault.Unauthenticated, "This request requires the token of an agent.").
			WithDetail("Send the template's coder_agent.NAME.token in the header %s.", sdk.SessionHeader)
	}
	agent, err := s.AuthenticateAgent(r.Context(), token)
	if err != nil {
		return Agent{}, err
	}
	return agent, s.ownerActive(r.Context(), agent)
}

func (s *Service) ownerActive(ctx context.Context, agent Agent) error {
	if s.opts.Accounts != nil && s.opts.Accounts.Active(ctx, agent.OwnerID) != nil {
		return fault.New(fault.Forbidden, "The workspace's owner is not active.")
	}
	return nil
}

// postLogSource names a source of lines in an agent's log, before or after its first lines.
func (s *Service) postLogSource(w http.ResponseWriter, r *http.Request) error {
	agent, err := s.program(r)
	if err != nil {
		return err
	}
	var body sdk.PostLogSourceRequest
	if err := httpapi.Read(w, r, &body); err != nil {
		return err
	}
	switch {
	case body.ID == uuid.Nil:
		return fault.New(fault.Invalid, "The log source has no id.").WithField("id", "required")
	case body.DisplayName == "" || len(body.DisplayName) > maxProgramName:
		return fault.New(fault.Invalid, "The log source has no usable name.").
			WithField("display_name", fmt.Sprintf("required, at most %d bytes", maxProgramName))
	case len(body.Icon) > maxProgramIcon:
		return fault.New(fault.Invalid, "The log source's icon is too long.").
			WithField("icon", fmt.Sprintf("at most %d bytes", maxProgramIcon))
	}
	source := dbsqlc.UpsertLogSourceParams{
		ID: programSource(agent.ID, body.ID), AgentID: agent.ID, DisplayName: database.Text(body.DisplayName),
		Icon: database.Text(body.Icon),
	}
	var stored []dbsqlc.WorkspaceAgentLogSource
	err = s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		if _, err := q.LockAgentLogs(r.Context(), agent.ID); err != nil {
			return err
		}
		n, err := q.CountProgramLogSources(r.Context(), dbsqlc.CountProgramLogSourcesParams{AgentID: agent.ID, ID: source.ID})
		if err != nil {
			return err
		}
		if n >= maxPrograms {
			return fault.New(fault.Conflict, "The agent has %d log sources of programs.", n).
				WithDetail("More can use them, or send lines without a source of their own.")
		}
		if _, err := q.UpsertLogSource(r.Context(), source); err != nil {
			return err
		}
		if stored, err = q.ListLogSourcesOfAgents(r.Context(), []uuid.UUID{agent.ID}); err != nil {
			return err
		}
		return announce(r.Context(), q, agent.ID, &agent.WorkspaceID)
	})
	if err != nil {
		return programFailed("store log source", err)
	}
	out := sdk.AgentLogSource{WorkspaceAgentID: agent.ID, ID: body.ID, DisplayName: source.DisplayName, Icon: source.Icon}
	for _, src := range stored {
		if src.ID == source.ID {
			out.CreatedAt = src.CreatedAt
		}
	}
	return httpapi.Write(w, http.StatusCreated, out)
}

// patchLogs adds lines to an agent's log.
func (s *Service) patchLogs(w http.ResponseWriter, r *http.Request) error {
	agent, err := s.program(r)
	if err != nil {
		return err
	}
	var body sdk.PatchAgentLogsRequest
	if err := httpapi.ReadAnyText(w, r, &body); err != nil {
		return err
	}
	lines := make([]*agentpb.LogLine, len(body.Logs))
	for i, l := range body.Logs {
		lines[i] = &agentpb.LogLine{Output: l.Output, Level: programLevels[l.Level]}
		if !l.CreatedAt.IsZero() {
			lines[i].At = timestamppb.New(l.CreatedAt)
		}
	}
	if err := s.storeProgramLogs(r.Context(), agent, body.LogSourceID, lines); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// programLevels are the levels of lines. Others are sdk.LogInfo.
var programLevels = map[sdk.LogLevel]agentpb.LogLevel{
	sdk.LogTrace: agentpb.LogLevel_LOG_LEVEL_DEBUG, sdk.LogDebug: agentpb.LogLevel_LOG_LEVEL_DEBUG,
	sdk.LogWarn: agentpb.LogLevel_LOG_LEVEL_WARN, sdk.LogError: agentpb.LogLevel_LOG_LEVEL_ERROR,
}

// storeProgramLogs appends lines of a program to an agent's log. Those of a source without a name share one. What is
// kept of a source is bounded as that of scripts is.
func (s *Service) storeProgramLogs(ctx context.Context, agent Agent, id uuid.UUID, lines []*agentpb.LogLine) error {
	if len(lines) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		if _, err := q.LockAgentLogs(ctx, agent.ID); err != nil {
			return err
		}
		source := programSource(agent.ID, id)
		src, err := q.LockLogSource(ctx, dbsqlc.LockLogSourceParams{ID: source, AgentID: agent.ID})
		if database.IsNotFound(err) {
			source = programSource(agent.ID, uuid.Nil)
			if _, err := q.UpsertLogSource(ctx, dbsqlc.UpsertLogSourceParams{
				ID: source, AgentID: agent.ID, DisplayName: unnamedPrograms,
			}); err != nil {
				return err
			}
			src, err = q.LockLogSource(ctx, dbsqlc.LockLogSourceParams{ID: source, AgentID: agent.ID})
		}
		if err != nil {
			return err
		}
		for i, l := range lines {
			l.Seq = uint64(src.LastSeq) + uint64(i) + 1
		}
		_, err = storeLogs(ctx, q, agent.ID, source, lines)
		return err
	})
	if err != nil {
		return programFailed("store log", err)
	}
	return nil
}

// programFailed returns the fault of a request whose agent has ended since it was authenticated.
func programFailed(doing string, err error) error {
	if database.IsNotFound(err) {
		return fault.New(fault.Unauthenticated, "This agent token is not valid any more.").
			WithDetail("The workspace has stopped.")
	}
	if fault.As(err) != nil {
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// programTime returns a time as seconds and nanoseconds say, or nil for none.
func programTime(seconds, nanos int64) *timestamppb.Timestamp {
	at := &timestamppb.Timestamp{Seconds: seconds, Nanos: int32(nanos)}
	if !at.IsValid() || at.AsTime().Equal(time.Unix(0, 0)) {
		return nil
	}
	return at
}
