package agents

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

const (
	maxProblem       = 4 << 10 // bytes of the report
	maxProblemText   = 1 << 10 // bytes of its description
	startupLogSource = "Start of the agent"
)

// startupSource returns the log source for reports about an agent's start.
func startupSource(agent uuid.UUID) uuid.UUID { return uuid.NewSHA1(agent, []byte("startup")) }

// postStartupProblem accepts the report of a start script that could not start its agent: the agent's token on the
// first line, the problem on the rest. It is plain text because shells write it, and the token is in the body because
// other users can see the arguments of their downloaders.
func (s *Service) postStartupProblem(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxProblem))
	if tooBig := (*http.MaxBytesError)(nil); errors.As(err, &tooBig) {
		return fault.New(fault.Invalid, "The report is longer than %d bytes.", maxProblem)
	}
	if err != nil {
		return fault.New(fault.Invalid, "The report cannot be read: %w", err)
	}
	token, rest, ok := bytes.Cut(body, []byte("\n"))
	text := problemText(string(rest))
	if !ok || text == "" {
		return fault.New(fault.Invalid,
			"The report needs the agent's token on its first line and the problem on the second.")
	}
	agent, err := s.AuthenticateAgent(r.Context(), secret.Token(strings.TrimSpace(string(token))))
	if err != nil {
		return err
	}
	err = s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		a, err := q.GetAgentForUpdate(r.Context(), agent.ID)
		if err != nil {
			return err
		}
		n, err := q.SetStartupProblem(r.Context(), dbsqlc.SetStartupProblemParams{ID: agent.ID, StartupProblem: text})
		if err != nil || n == 0 || a.StartupProblem == text {
			return err
		}
		source := startupSource(agent.ID)
		if _, err := q.UpsertLogSource(r.Context(), dbsqlc.UpsertLogSourceParams{
			ID: source, AgentID: agent.ID, DisplayName: startupLogSource,
		}); err != nil {
			return err
		}
		src, err := q.LockLogSource(r.Context(), dbsqlc.LockLogSourceParams{ID: source, AgentID: agent.ID})
		if err != nil {
			return err
		}
		line := &agentpb.LogLine{
			Seq: uint64(src.LastSeq) + 1, At: timestamppb.Now(), Level: agentpb.LogLevel_LOG_LEVEL_ERROR, Output: text,
		}
		if _, err := storeLogs(r.Context(), q, agent.ID, source, []*agentpb.LogLine{line}); err != nil {
			return err
		}
		return announce(r.Context(), q, agent.ID, &agent.WorkspaceID)
	})
	if err != nil {
		return fmt.Errorf("store startup problem: %w", err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// problemText returns a report in a form that is safe to show on a terminal: one paragraph of printable letters.
func problemText(text string) string {
	text = strings.Map(func(c rune) rune {
		switch {
		case unicode.IsSpace(c):
			return ' '
		case !unicode.IsPrint(c):
			return -1
		}
		return c
	}, database.Text(text))
	return strings.ToValidUTF8(strings.TrimSpace(text)[:min(len(strings.TrimSpace(text)), maxProblemText)], "")
}
