package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// errStale reports that the event belongs to a lease that has ended.
var errStale = errors.New("stale epoch")

// receive applies what a daemon sends until its stream ends.
func (s *Service) receive(ctx context.Context, x *session) error {
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	for {
		quiet.Reset(silence)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-quiet.C:
			return errSilent
		case <-x.in.arrived:
			if err := s.messages(ctx, x, x.in.take(math.MaxInt)); err != nil {
				return err
			}
		}
	}
}

// messages applies messages in order, except that those events of a lease that follow each other without another kind
// of message are stored together.
func (s *Service) messages(ctx context.Context, x *session, messages []*provisionerpb.DaemonMessage) error {
	var events []*provisionerpb.Event
	flush := func() error {
		for _, group := range groups(events) {
			if err := s.events(ctx, x, group); err != nil {
				return err
			}
		}
		events = nil
		return nil
	}
	for _, m := range messages {
		if e := m.GetEvent(); e != nil {
			events = append(events, e)
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		if err := s.message(ctx, x, m); err != nil {
			return err
		}
	}
	return flush()
}

func (s *Service) message(ctx context.Context, x *session, m *provisionerpb.DaemonMessage) error {
	switch m := m.GetMessage().(type) {
	case *provisionerpb.DaemonMessage_Ready:
		s.ready(ctx, x, int(min(m.Ready.GetSlots(), maxSlots)))
		return nil
	case *provisionerpb.DaemonMessage_Accept:
		return s.accepted(x, m.Accept)
	case *provisionerpb.DaemonMessage_Ping:
		x.send(&provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Pong{Pong: &provisionerpb.Pong{
			Nonce: m.Ping.GetNonce(),
		}}})
		return nil
	default:
		return fmt.Errorf("unexpected message %T", m)
	}
}

// ready records how many offers a daemon can take. The daemon's count does not include the offers that are on their way
// to it. A daemon that reports 0 does not take those either: it is stopping.
func (s *Service) ready(ctx context.Context, x *session, slots int) {
	var withdrawn map[uuid.UUID]int64
	s.mu.Lock()
	x.slots = max(slots-len(x.offers), 0)
	if slots == 0 {
		withdrawn, x.offers = x.offers, map[uuid.UUID]int64{}
	}
	s.mu.Unlock()
	s.giveBack(ctx, withdrawn)
	s.wake.Poke()
}

// accepted turns an offer into a lease and confirms it: the daemon begins only after that.
func (s *Service) accepted(x *session, a *provisionerpb.Accept) error {
	id, err := uuid.FromBytes(a.GetJobId())
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	s.mu.Lock()
	epoch, offered := x.offers[id]
	if offered && uint64(epoch) == a.GetEpoch() {
		delete(x.offers, id)
		x.leases[id] = epoch
	}
	s.mu.Unlock()
	if !offered || uint64(epoch) != a.GetEpoch() {
		s.revoke(x, a.GetJobId(), a.GetEpoch(), "the job is not on offer to this provisioner")
		return nil
	}
	// The daemon begins when it knows that the server received its acceptance.
	x.send(&provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Ack{Ack: &provisionerpb.Ack{
		JobId: a.GetJobId(), Epoch: a.GetEpoch(),
	}}})
	return nil
}

func (s *Service) revoke(x *session, job []byte, epoch uint64, reason string) {
	x.send(&provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Revoked{Revoked: &provisionerpb.Revoked{
		JobId: job, Epoch: epoch, Reason: reason,
	}}})
}

// events applies events of one lease, in order and each once, in one transaction, and acknowledges them. An unavailable
// database blocks the stream: the daemon keeps what is not acknowledged.
func (s *Service) events(ctx context.Context, x *session, events []*provisionerpb.Event) error {
	last := events[len(events)-1]
	id, err := uuid.FromBytes(last.GetJobId())
	if err != nil {
		return fmt.Errorf("event: %w", err)
	}
	var over, ends bool
	size := inPieces(last).GetSize()
	defer x.busy(size)()
	apply := func(events ...*provisionerpb.Event) error {
		query, cancel := context.WithTimeout(ctx, queryTimeout+time.Duration(min(size, maxState)/stateRate)*time.Second)
		defer cancel()
		return s.opts.DB.InTx(query, func(q *dbsqlc.Queries) (err error) {
			over, ends, err = s.apply(query, q, x, id, events)
			return err
		})
	}
	err = apply(events...)
	if err != nil && len(events) > 1 && fault.CodeOf(err) != fault.Unavailable && ctx.Err() == nil {
		for i := range events { // one of them cannot be stored
			if err := s.events(ctx, x, events[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	for _, simpler := range fallbacks(last) {
		if err == nil || errors.Is(err, errStale) || fault.CodeOf(err) == fault.Unavailable || ctx.Err() != nil {
			break
		}
		// Otherwise the daemon would send the unstorable event forever.
		s.log.Error("cannot store event, storing a shorter one", "job", id, "err", err)
		err = apply(simpler)
	}
	if errors.Is(err, errStale) {
		s.drop(x, id, last.GetEpoch())
		s.revoke(x, last.GetJobId(), last.GetEpoch(), "the job was given to another provisioner, or has ended")
		return nil
	}
	s.stall(id, err)
	if err != nil {
		return fmt.Errorf("apply event of job %s: %w", id, err)
	}
	if over {
		s.drop(x, id, last.GetEpoch())
	}
	x.send(&provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Ack{Ack: &provisionerpb.Ack{
		JobId: last.GetJobId(), Epoch: last.GetEpoch(), Seq: last.GetSeq(),
	}}})
	if ends {
		s.count(ctx, id)
	}
	return nil
}

// stall records why a job's reports cannot be stored now, for readers who follow its log; nil means that they can.
func (s *Service) stall(job uuid.UUID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if why := unavailable(err); why != "" {
		s.stalled[job] = why
		return
	}
	delete(s.stalled, job)
}

// hold records why no job can be given to a provisioner now, for readers who follow a waiting job's log; nil means that
// jobs can be given out.
func (s *Service) hold(err error) {
	why := unavailable(err)
	if err != nil && why == "" {
		return // concerns one job or one daemon only
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = why
}

// unavailable returns the text that users see for an error that means "the database cannot serve now", "" for other
// errors.
func unavailable(err error) string {
	if f := fault.As(err); f != nil && f.Code == fault.Unavailable {
		return strings.TrimSpace(f.Message + " " + f.Detail)
	}
	return ""
}

// fallbacks returns what to store instead of an event that cannot be stored, the best first. For a result: at least its
// state and what that may lack, then only the job's end, which names what the server itself knows. For any other event:
// a line in the log.
func fallbacks(e *provisionerpb.Event) []*provisionerpb.Event {
	with := func(event *provisionerpb.Event) *provisionerpb.Event {
		event.JobId, event.Epoch, event.Seq, event.At = e.GetJobId(), e.GetEpoch(), e.GetSeq(), e.GetAt()
		return event
	}
	result := e.GetResult()
	if result == nil {
		return []*provisionerpb.Event{with(&provisionerpb.Event{Event: &provisionerpb.Event_Log{Log: &provisionerpb.LogBatch{Lines: []*provisionerpb.LogLine{{
			At: e.GetAt(), Level: provisionerpb.LogLevel_LOG_LEVEL_ERROR,
			Source: provisionerpb.LogSource_LOG_SOURCE_DAEMON, Stage: "Storing",
			Output: "The server could not store the provisioner's report. Its log has the cause.",
		}}}}})}
	}
	broken := &provisionerpb.Result{Error: "The server could not store the job's result. Its log has the cause."}
	if result.GetError() != "" {
		broken.Error = result.GetError()
	}
	out := []*provisionerpb.Event{}
	if build := result.GetWorkspaceBuild(); len(build.GetState()) > 0 || build.GetStateInPieces() != nil {
		kept := &provisionerpb.Result{Error: broken.GetError(), Of: &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: &provisionerpb.BuildResult{
			State: build.GetState(), StateInPieces: build.GetStateInPieces(), InFlight: build.GetInFlight(),
			Unknown: build.GetUnknown(), Tainted: build.GetTainted(),
		}}}
		out = append(out, with(&provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: kept}}))
	}
	return append(out, with(&provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: broken}}))
}

func (s *Service) drop(x *session, id uuid.UUID, epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if uint64(x.leases[id]) == epoch {
		delete(x.leases, id)
	}
}

// apply stores events of one lease in the caller's transaction, and reports whether the job has ended, and whether one
// of these events ends it.
func (s *Service) apply(
	ctx context.Context, q *dbsqlc.Queries, x *session, id uuid.UUID, events []*provisionerpb.Event,
) (over, ends bool, err error) {
	job, err := q.LockJob(ctx, id)
	if database.IsNotFound(err) {
		return false, false, errStale
	}
	if err != nil {
		return false, false, fmt.Errorf("lock job: %w", err)
	}
	if uint64(job.Epoch) != events[0].GetEpoch() || job.WorkerID == nil || *job.WorkerID != x.daemon.ID {
		return false, false, errStale
	}
	before := job
	for _, e := range events {
		if e.GetSeq() <= uint64(job.LastSeq) {
			continue // applied before, and the acknowledgement was lost
		}
		if over || ended(job.Status) {
			return true, false, errStale
		}
		if e.GetSeq() != uint64(job.LastSeq)+1 {
			return false, false, fmt.Errorf("event %d follows %d", e.GetSeq(), job.LastSeq)
		}
		job.LastSeq = int64(e.GetSeq())
		if over, err = s.applyOne(ctx, q, &job, e); err != nil {
			return false, false, err
		}
	}
	if job.LastSeq == before.LastSeq {
		return ended(job.Status), false, nil
	}
	if over {
		return true, true, nil // the job's end is stored with the rest
	}
	return false, false, q.AdvanceJob(ctx, dbsqlc.AdvanceJobParams{
		ID: id, LastSeq: job.LastSeq, Logged: job.LogLength - before.LogLength, Overflowed: job.LogOverflowed,
	})
}

// applyOne stores one event and reports whether it ends the job. The caller stores what it changes in the job: the size
// of its log.
func (s *Service) applyOne(
	ctx context.Context, q *dbsqlc.Queries, job *dbsqlc.ProvisionerJob, e *provisionerpb.Event,
) (over bool, err error) {
	handler := s.handlers[job.Kind]
	if handler == nil {
		return false, fmt.Errorf("no handler for %s", job.Kind)
	}
	var whole []byte // the state that arrived in pieces
	if ref := inPieces(e); ref != nil {
		if whole, err = s.assemble(ctx, q, *job, ref); err != nil {
			return false, err
		}
	}
	switch e := e.GetEvent().(type) {
	case *provisionerpb.Event_Log:
		size, overflowed, err := s.storeLogs(ctx, q, *job, e.Log)
		if err != nil {
			return false, err
		}
		job.LogLength, job.LogOverflowed = job.LogLength+size, overflowed
		return false, storeChanges(ctx, q, job.ID, e.Log.GetChanges())
	case *provisionerpb.Event_StatePiece:
		return false, s.storePiece(ctx, q, *job, e.StatePiece)
	case *provisionerpb.Event_Checkpoint:
		if whole == nil {
			whole = e.Checkpoint.GetState()
		}
		return false, handler.Checkpoint(ctx, q, *job, whole)
	case *provisionerpb.Event_Resources:
		return false, handler.Resources(ctx, q, *job, e.Resources.GetResources())
	case *provisionerpb.Event_Result:
		result := e.Result
		if whole != nil {
			result = withState(result, whole)
		}
		return true, s.end(ctx, q, *job, result)
	default:
		return false, fmt.Errorf("unexpected event %T", e)
	}
}

// withState returns a build's result with the state that arrived in pieces. It does not change the given result.
func withState(result *provisionerpb.Result, state []byte) *provisionerpb.Result {
	build := result.GetWorkspaceBuild()
	return &provisionerpb.Result{
		Error: result.GetError(), ErrorCode: result.GetErrorCode(), Canceled: result.GetCanceled(),
		Of: &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: &provisionerpb.BuildResult{
			State: state, Resources: build.GetResources(), InFlight: build.GetInFlight(), Unknown: build.GetUnknown(),
			Tainted:  build.GetTainted(),
			Replaces: build.GetReplaces(), Created: build.GetCreated(),
		}},
	}
}

var levels = map[provisionerpb.LogLevel]string{
	provisionerpb.LogLevel_LOG_LEVEL_TRACE: "trace",
	provisionerpb.LogLevel_LOG_LEVEL_DEBUG: "debug",
	provisionerpb.LogLevel_LOG_LEVEL_INFO:  "info",
	provisionerpb.LogLevel_LOG_LEVEL_WARN:  "warn",
	provisionerpb.LogLevel_LOG_LEVEL_ERROR: "error",
}

// lineOverhead is the cost of a log line in addition to its text, in bytes: about what PostgreSQL needs for its row.
const lineOverhead = 100

// storeLogs stores lines up to the job's bound, and reports once that there were more. After that it keeps only errors:
// the reason why a job failed is at the end of its log.
func (s *Service) storeLogs(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, batch *provisionerpb.LogBatch,
) (size int64, overflowed bool, err error) {
	overflowed = job.LogOverflowed
	p := dbsqlc.InsertJobLogsParams{JobID: job.ID}
	add := func(at time.Time, source, level, stage, output string) {
		p.CreatedAt = append(p.CreatedAt, at)
		p.Sources, p.Levels = append(p.Sources, source), append(p.Levels, level)
		p.Stages, p.Outputs = append(p.Stages, database.Visible(cut(stage, 256))), append(p.Outputs,
			database.Visible(output))
		size += int64(len(output)) + lineOverhead
	}
	for _, line := range batch.GetLines() {
		output := line.GetOutput()
		if len(output) > maxLineBytes {
			output = fmt.Sprintf("%s… [cut: %d bytes]", cut(output, maxLineBytes), len(output))
		}
		level := cmp.Or(levels[line.GetLevel()], "info")
		used := job.LogLength + size + int64(len(output)) + lineOverhead
		if used > maxLogBytes && !overflowed {
			add(time.Now(), "provisioner_daemon", "warn", line.GetStage(),
				fmt.Sprintf("The log is longer than %d MiB. From here on, only errors are kept.", maxLogBytes>>20))
			overflowed = true
		}
		if overflowed && (level != "error" || used > maxLogBytes+maxErrorBytes) {
			continue
		}
		source, at := "provisioner", time.Now()
		if line.GetSource() == provisionerpb.LogSource_LOG_SOURCE_DAEMON {
			source = "provisioner_daemon"
		}
		if line.GetAt().IsValid() {
			at = line.GetAt().AsTime()
		}
		add(at, source, level, line.GetStage(), output)
	}
	if len(p.Outputs) == 0 {
		return 0, overflowed, nil
	}
	if err := q.InsertJobLogs(ctx, p); err != nil {
		return 0, false, fmt.Errorf("insert job logs: %w", err)
	}
	return size, overflowed, nil
}

// sourceChunk is the size of the pieces in which a source archive is sent, in bytes.
const sourceChunk = 1 << 20

func errNotHeld() error {
	return connect.NewError(connect.CodePermissionDenied, errors.New("this provisioner holds no lease on that job"))
}

// held returns a job if the calling daemon holds it. It refuses any other job in the same way, whether it exists or
// not.
func (r *rpc) held(ctx context.Context, peer connect.Peer, jobID []byte) (job dbsqlc.ProvisionerJob, err error) {
	daemon, err := r.daemon(peer)
	if err != nil {
		return job, err
	}
	id, err := uuid.FromBytes(jobID)
	if err != nil {
		return job, connect.NewError(connect.CodeInvalidArgument, err)
	}
	job, err = r.opts.DB.GetJob(ctx, id)
	switch {
	case database.IsNotFound(err):
		return job, errNotHeld()
	case err != nil:
		return job, connect.NewError(connect.CodeUnavailable, fmt.Errorf("read job: %w", err))
	case job.WorkerID == nil || *job.WorkerID != daemon.ID || ended(job.Status):
		return job, errNotHeld()
	}
	return job, nil
}

// Source sends the archive of a job that the calling daemon holds.
func (r *rpc) Source(ctx context.Context, req *connect.Request[provisionerpb.SourceRequest], stream *connect.ServerStream[provisionerpb.SourceChunk]) error {
	job, err := r.held(ctx, req.Peer(), req.Msg.GetJobId())
	if err != nil {
		return err
	}
	if string(job.FileID[:]) != string(req.Msg.GetFileId()) {
		return errNotHeld()
	}
	for at := int32(1); ; at += sourceChunk {
		data, err := r.opts.DB.GetSourceChunk(ctx, dbsqlc.GetSourceChunkParams{
			ID: job.FileID, FirstByte: at, Size: sourceChunk,
		})
		if err != nil {
			return connect.NewError(connect.CodeUnavailable, fmt.Errorf("read file: %w", err))
		}
		if len(data) > 0 {
			if err := stream.Send(&provisionerpb.SourceChunk{Data: data}); err != nil {
				return err
			}
		}
		if len(data) < sourceChunk {
			return nil
		}
	}
}
