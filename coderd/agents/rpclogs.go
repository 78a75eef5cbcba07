package agents

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/agent/agentpb"
	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/internal/sdk"
)

// MaxLogs bounds what is kept of one agent's output in one build, in bytes.
const MaxLogs = 1 << 20

func (r *rpc) Logs(ctx context.Context, req *connect.Request[agentpb.LogsRequest]) (*connect.Response[agentpb.LogsResponse], error) {
	id, err := r.who(req.Peer())
	if err != nil {
		return nil, err
	}
	source, err := uuid.FromBytes(req.Msg.GetLogSourceId())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("log_source_id is required"))
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var out *agentpb.LogsResponse
	err = r.deps.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		out, err = storeLogs(ctx, q, id, source, req.Msg.GetLines())
		return err
	})
	if err != nil {
		return nil, r.fail(ctx, id, "store log", err)
	}
	return connect.NewResponse(out), nil
}

// storeLogs appends the lines that are new, as far as they fit.
func storeLogs(ctx context.Context, q *dbsqlc.Queries, agent, source uuid.UUID, lines []*agentpb.LogLine) (*agentpb.LogsResponse, error) {
	a, err := q.LockAgentLogs(ctx, agent)
	if err != nil {
		return nil, err
	}
	last, err := q.LockLogSource(ctx, dbsqlc.LockLogSourceParams{ID: source, AgentID: agent})
	if err != nil {
		return nil, err
	}
	p := dbsqlc.InsertAgentLogsParams{AgentID: agent, LogSourceID: source, CreatedAt: []time.Time{}, Level: []string{}, Output: []string{}}
	length, full, before := a.LogsLength, a.LogsOverflowed, last
	for _, l := range lines {
		if int64(l.GetSeq()) <= last {
			continue
		}
		last = int64(l.GetSeq())
		output := clean(l.GetOutput())
		if full || length+int64(len(output)) > MaxLogs {
			full = true
			continue
		}
		length += int64(len(output))
		at := now()
		if l.GetAt().IsValid() {
			at = clampTime(l.GetAt().AsTime())
		}
		p.CreatedAt, p.Level, p.Output = append(p.CreatedAt, at), append(p.Level, string(logLevel(l.GetLevel()))), append(p.Output, output)
	}
	out := &agentpb.LogsResponse{StoredSeq: uint64(last), LimitExceeded: full}
	if last == before {
		return out, nil
	}
	if len(p.Output) > 0 {
		if err := q.InsertAgentLogs(ctx, p); err != nil {
			return nil, err
		}
	}
	if err := q.AdvanceLogSource(ctx, dbsqlc.AdvanceLogSourceParams{ID: source, LastSeq: last}); err != nil {
		return nil, err
	}
	if err := q.AdvanceAgentLogs(ctx, dbsqlc.AdvanceAgentLogsParams{ID: agent, LogsLength: length, LogsOverflowed: full}); err != nil {
		return nil, err
	}
	if full != a.LogsOverflowed {
		return out, notify(ctx, q, agent, a.WorkspaceID)
	}
	return out, q.NotifyAgent(ctx, agent)
}

func logLevel(l agentpb.LogLevel) sdk.LogLevel {
	switch l {
	case agentpb.LogLevel_LOG_LEVEL_DEBUG:
		return sdk.LogDebug
	case agentpb.LogLevel_LOG_LEVEL_WARN:
		return sdk.LogWarn
	case agentpb.LogLevel_LOG_LEVEL_ERROR:
		return sdk.LogError
	default:
		return sdk.LogInfo
	}
}
