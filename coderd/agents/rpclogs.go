package agents

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// MaxLogs bounds the stored output of one log source in one build, in bytes: half of it is the beginning, the rest the
// end. Each line counts as its text plus LineOverhead, so MaxLogs bounds the number of lines, too.
const MaxLogs = 1 << 20

// LineOverhead is the cost of a line in addition to its text, in bytes: about what PostgreSQL needs for its row and
// index entries.
const LineOverhead = 100

const (
	maxHead = MaxLogs / 2
	maxTail = MaxLogs / 2
	// trimAt is how far the tail may grow before it is cut to maxTail: cutting has to read all of it.
	trimAt = maxTail + maxTail/4
)

func (r *rpc) Logs(
	ctx context.Context, req *connect.Request[agentpb.LogsRequest],
) (*connect.Response[agentpb.LogsResponse], error) {
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
	err = r.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		out, err = storeLogs(ctx, q, id, source, req.Msg.GetLines())
		return err
	})
	if err != nil {
		return nil, r.fail(ctx, id, "store log", err)
	}
	return connect.NewResponse(out), nil
}

// storeLogs appends the new lines. It keeps the beginning of a log for good, and later lines while they are among the
// last.
func storeLogs(
	ctx context.Context, q *dbsqlc.Queries, agent, source uuid.UUID, lines []*agentpb.LogLine,
) (*agentpb.LogsResponse, error) {
	a, err := q.LockAgentLogs(ctx, agent)
	if err != nil {
		return nil, err
	}
	src, err := q.LockLogSource(ctx, dbsqlc.LockLogSourceParams{ID: source, AgentID: agent})
	if err != nil {
		return nil, err
	}
	p := dbsqlc.InsertAgentLogsParams{AgentID: agent, LogSourceID: source, CreatedAt: []time.Time{}, Level: []string{}, Output: []string{}, Tail: []bool{}}
	next := dbsqlc.AdvanceLogSourceParams{
		ID: source, LastSeq: src.LastSeq, HeadBytes: src.HeadBytes, TailBytes: src.TailBytes, LeftOut: src.LeftOut,
		GapID: src.GapID,
	}
	before := src.HeadBytes + src.TailBytes
	for _, l := range lines {
		if int64(l.GetSeq()) <= next.LastSeq {
			continue
		}
		next.LastSeq = int64(l.GetSeq())
		output := database.Text(l.GetOutput())
		cost := int64(len(output)) + LineOverhead
		tail := next.TailBytes > 0 || next.HeadBytes+cost > maxHead
		if tail {
			next.TailBytes += cost
		} else {
			next.HeadBytes += cost
		}
		at := now()
		if l.GetAt().IsValid() {
			at = clampTime(l.GetAt().AsTime())
		}
		p.CreatedAt, p.Level = append(p.CreatedAt, at), append(p.Level, string(logLevel(l.GetLevel())))
		p.Output, p.Tail = append(p.Output, output), append(p.Tail, tail)
	}
	out := &agentpb.LogsResponse{StoredSeq: uint64(next.LastSeq), LimitExceeded: next.TailBytes > 0}
	if next.LastSeq == src.LastSeq {
		return out, nil
	}
	if err := q.InsertAgentLogs(ctx, p); err != nil {
		return nil, err
	}
	if next.TailBytes > trimAt {
		if err := trimTail(ctx, q, &next); err != nil {
			return nil, err
		}
	}
	if err := q.AdvanceLogSource(ctx, next); err != nil {
		return nil, err
	}
	overflowed := a.LogsOverflowed || next.LeftOut > 0
	length := max(a.LogsLength+next.HeadBytes+next.TailBytes-before, 0)
	if err := q.AdvanceAgentLogs(ctx, dbsqlc.AdvanceAgentLogsParams{
		ID: agent, LogsLength: length, LogsOverflowed: overflowed,
	}); err != nil {
		return nil, err
	}
	if overflowed != a.LogsOverflowed {
		return out, announce(ctx, q, agent, a.WorkspaceID)
	}
	return out, q.NotifyAgent(ctx, agent)
}

// trimTail removes the oldest lines of the tail, and replaces them with one line that states how many there were.
func trimTail(ctx context.Context, q *dbsqlc.Queries, src *dbsqlc.AdvanceLogSourceParams) error {
	old, err := q.ListOldTail(ctx, dbsqlc.ListOldTailParams{
		LogSourceID: src.ID, LineOverhead: LineOverhead, Keep: maxTail,
	})
	if err != nil || len(old) == 0 {
		return err
	}
	for _, line := range old {
		src.TailBytes -= line.Bytes
	}
	src.LeftOut += int64(len(old))
	if src.GapID == nil {
		src.GapID = &old[0].ID
		old = old[1:]
	}
	ids := make([]int64, len(old))
	for i, line := range old {
		ids[i] = line.ID
	}
	if err := q.DeleteAgentLogLines(ctx, ids); err != nil {
		return err
	}
	return q.SetLogGap(ctx, dbsqlc.SetLogGapParams{
		ID:     *src.GapID,
		Output: fmt.Sprintf("[%d lines are left out here: the log is longer than what is kept]", src.LeftOut),
	})
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
