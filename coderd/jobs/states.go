package jobs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// StateHandler is a Handler of jobs that have a Terraform state.
type StateHandler interface {
	StateReader
	// Seal and Open encrypt and decrypt a part of the job's state.
	Seal(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, data []byte) ([]byte, error)
	Open(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, data []byte) ([]byte, error)
	// Lost completes a result that did not come from the provisioner, or whose state cannot be stored: it marks in the
	// last state which changes had begun, and names what that state may lack.
	Lost(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, changes []*provisionerpb.Change, result *provisionerpb.Result) error
}

// StateReader is a Handler of jobs that begin with a Terraform state and may leave none.
type StateReader interface {
	Handler
	// State returns the state that the job begins with.
	State(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob) ([]byte, error)
}

const (
	// maxPiece bounds one piece of a state, in bytes. A state that fits into one piece is not split.
	maxPiece = 4 << 20
	// maxState bounds a state, in bytes: PostgreSQL keeps it as one value of less than 1 GiB, encrypted.
	maxState = 1<<30 - 64<<20
	// stateRate is the minimum rate at which a state is stored, in bytes per second.
	stateRate = 2 << 20
)

// errBadPieces reports that the received pieces do not make the announced state.
var errBadPieces = errors.New("the pieces of the state do not make the state that was announced")

// inPieces returns the description of a state that an event names but does not carry, nil for other events.
func inPieces(e *provisionerpb.Event) *provisionerpb.StateRef {
	if c := e.GetCheckpoint(); c != nil {
		return c.GetStateInPieces()
	}
	return e.GetResult().GetWorkspaceBuild().GetStateInPieces()
}

// storePiece keeps a piece of a state until an event names the whole state.
func (s *Service) storePiece(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, piece *provisionerpb.StatePiece,
) error {
	handler, ok := s.handlers[job.Kind].(StateHandler)
	if !ok {
		return fmt.Errorf("a job of the kind %s has no state", job.Kind)
	}
	if piece.GetOffset() == 0 {
		if err := q.DeleteStatePieces(ctx, job.ID); err != nil {
			return fmt.Errorf("forget earlier pieces: %w", err)
		}
	}
	there, err := q.CountStatePieces(ctx, job.ID)
	if err != nil {
		return fmt.Errorf("count pieces: %w", err)
	}
	size := len(piece.GetData())
	if uint64(there) != piece.GetOffset() || size == 0 || size > maxPiece || there+int64(size) > maxState {
		return fmt.Errorf("piece of %d bytes at %d, with %d stored: %w", size, piece.GetOffset(), there, errBadPieces)
	}
	sealed, err := handler.Seal(ctx, q, job, piece.GetData())
	if err != nil {
		return fmt.Errorf("encrypt piece: %w", err)
	}
	if err := q.InsertStatePiece(ctx, dbsqlc.InsertStatePieceParams{
		JobID: job.ID, FirstByte: there, Size: int64(size), Data: sealed,
	}); err != nil {
		return fmt.Errorf("insert piece: %w", err)
	}
	return nil
}

// assemble joins the received pieces into a state and deletes them.
func (s *Service) assemble(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, ref *provisionerpb.StateRef,
) ([]byte, error) {
	handler, ok := s.handlers[job.Kind].(StateHandler)
	if !ok {
		return nil, fmt.Errorf("a job of the kind %s has no state", job.Kind)
	}
	rows, err := q.ListStatePieces(ctx, job.ID)
	if err != nil {
		return nil, fmt.Errorf("list pieces: %w", err)
	}
	if ref.GetSize() > maxState {
		return nil, errBadPieces
	}
	state, hash := make([]byte, 0, ref.GetSize()), sha256.New()
	for _, row := range rows {
		sealed, err := q.GetStatePiece(ctx, dbsqlc.GetStatePieceParams{JobID: job.ID, FirstByte: row.FirstByte})
		if err != nil {
			return nil, fmt.Errorf("read piece: %w", err)
		}
		data, err := handler.Open(ctx, q, job, sealed)
		if err != nil {
			return nil, fmt.Errorf("decrypt piece: %w", err)
		}
		if uint64(len(state)+len(data)) > ref.GetSize() {
			return nil, errBadPieces
		}
		hash.Write(data)
		state = append(state, data...)
	}
	if uint64(len(state)) != ref.GetSize() || !bytes.Equal(hash.Sum(nil), ref.GetSha256()) {
		return nil, errBadPieces
	}
	if err := q.DeleteStatePieces(ctx, job.ID); err != nil {
		return nil, fmt.Errorf("forget pieces: %w", err)
	}
	return state, nil
}

// storeChanges keeps the last step of each resource that a job changes.
func storeChanges(ctx context.Context, q *dbsqlc.Queries, job uuid.UUID, changes []*provisionerpb.Change) error {
	if len(changes) == 0 {
		return nil
	}
	p := dbsqlc.UpsertJobChangesParams{JobID: job}
	at := map[string]int{}
	for _, c := range changes {
		address := database.Visible(c.GetAddress())
		i, ok := at[address]
		if !ok {
			i = len(p.Addresses)
			at[address] = i
			digest := sha256.Sum256([]byte(address))
			p.Digests, p.Addresses = append(p.Digests, digest[:]), append(p.Addresses, address)
			p.Creates, p.Ended = append(p.Creates, false), append(p.Ended, "")
		}
		p.Creates[i], p.Ended[i] = c.GetCreates(), ends[c.GetEnd()]
	}
	if err := q.UpsertJobChanges(ctx, p); err != nil {
		return fmt.Errorf("store changes: %w", err)
	}
	return nil
}

var ends = map[provisionerpb.Change_End]string{
	provisionerpb.Change_END_UNSPECIFIED: "",
	provisionerpb.Change_END_COMPLETE:    "complete",
	provisionerpb.Change_END_ERRORED:     "errored",
}

// settleLost completes a result that has no part of its kind, and deletes what was kept for that purpose.
func (s *Service) settleLost(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, result *provisionerpb.Result,
) error {
	handler, ok := s.handlers[job.Kind].(StateHandler)
	if !ok {
		return nil
	}
	if result.GetWorkspaceBuild() == nil {
		rows, err := q.ListJobChanges(ctx, job.ID)
		if err != nil {
			return fmt.Errorf("list changes: %w", err)
		}
		var changes []*provisionerpb.Change
		for _, row := range rows {
			c := &provisionerpb.Change{Address: row.Address, Creates: row.Creates}
			for end, text := range ends {
				if text == row.Ended {
					c.End = end
				}
			}
			changes = append(changes, c)
		}
		if err := handler.Lost(ctx, q, job, changes, result); err != nil {
			return err
		}
	}
	if err := q.DeleteJobParts(ctx, job.ID); err != nil {
		return fmt.Errorf("forget changes: %w", err)
	}
	return nil
}

// State sends the initial state of a build to the daemon that holds it.
func (r *rpc) State(ctx context.Context, req *connect.Request[provisionerpb.StateRequest], stream *connect.ServerStream[provisionerpb.StateChunk]) error {
	job, err := r.held(ctx, req.Peer(), req.Msg.GetJobId())
	if err != nil {
		return err
	}
	handler, ok := r.handlers[job.Kind].(StateReader)
	if !ok || uint64(job.Epoch) != req.Msg.GetEpoch() {
		return errNotHeld()
	}
	state, err := handler.State(ctx, r.opts.DB.Queries, job)
	if err != nil {
		return connect.NewError(connect.CodeUnavailable, fmt.Errorf("read state: %w", err))
	}
	for at := 0; at < len(state); at += sourceChunk {
		if err := stream.Send(&provisionerpb.StateChunk{Data: state[at:min(at+sourceChunk, len(state))]}); err != nil {
			return err
		}
	}
	return nil
}

// refer replaces a state that is too large for an offer with its description. The daemon fetches the state with State.
func refer(offer *provisionerpb.Offer) {
	if build := offer.GetWorkspaceBuild(); len(build.GetState()) > maxPiece {
		build.State, build.StateInPieces = nil, refTo(build.GetState())
	}
	if existing := offer.GetTemplateDryRun().GetExisting(); len(existing.GetState()) > maxPiece {
		existing.State, existing.StateInPieces = nil, refTo(existing.GetState())
	}
}

func refTo(state []byte) *provisionerpb.StateRef {
	sum := sha256.Sum256(state)
	return &provisionerpb.StateRef{Size: uint64(len(state)), Sha256: sum[:]}
}

// pongEvery is the interval of messages to the daemon while a large state is stored.
const pongEvery = 5 * time.Second

// busy keeps telling the daemon that the server lives while the server stores something large, until stop is called.
func (x *session) busy(size uint64) (stop func()) {
	if size == 0 {
		return func() {}
	}
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		ticker := time.NewTicker(pongEvery)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				x.send(&provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Pong{Pong: &provisionerpb.Pong{}}})
			}
		}
	}()
	return func() { close(done); <-over }
}
