package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/jobtags"
	"github.com/codermesh/codermesh/v2/internal/rpcwire"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb/provisionerpbconnect"
)

// outgoing bounds the messages that wait for a slow daemon. The server cuts a daemon that lets the queue fill; it
// resumes on a new stream.
const outgoing = 256

// protocolVersion is the only supported version.
const protocolVersion = 2

// sendTimeout bounds one write to a daemon.
const sendTimeout = 30 * time.Second

// maxSlots bounds how many jobs one daemon may have.
const maxSlots = 64

var (
	errReplaced = errors.New("a newer session of the same daemon replaced this one")
	errSlow     = errors.New("the daemon does not read")
	errSilent   = errors.New("the daemon stopped responding")
	errStopping = errors.New("the server is stopping")
	errCut      = errors.New("the daemon lost its access")
)

// session is one daemon's stream.
type session struct {
	daemon   Daemon
	tags     []byte // JSON, normal
	untagged bool
	org      uuid.UUID
	in       *inbox
	out      chan *provisionerpb.ServerMessage
	cancel   context.CancelCauseFunc
	opened   *time.Time // as in the daemon's row

	// Guarded by Service.mu.
	slots  int                 // how many more offers it can take
	offers map[uuid.UUID]int64 // epochs of jobs offered and not accepted yet
	leases map[uuid.UUID]int64 // epochs of accepted jobs
}

// send never blocks.
func (x *session) send(m *provisionerpb.ServerMessage) {
	select {
	case x.out <- m:
	default:
		x.cancel(errSlow)
	}
}

// RPCHandler serves the build-job protocol. caller returns the daemon that holds a mesh address.
func (s *Service) RPCHandler(caller func(netip.Addr) (Daemon, bool)) (string, http.Handler) {
	path, h := provisionerpbconnect.NewProvisionerServiceHandler(&rpc{s, caller}, connect.WithReadMaxBytes(maxMessage),
		connect.WithCompressMinBytes(rpcwire.CompressFrom))
	return path, rpcwire.Handler(h)
}

// maxMessage bounds one message, in bytes: a state of 64 MiB and its envelope.
const maxMessage = 80 << 20

type rpc struct {
	*Service
	caller func(netip.Addr) (Daemon, bool)
}

// daemon returns the calling daemon.
func (r *rpc) daemon(peer connect.Peer) (Daemon, error) {
	addr, err := netip.ParseAddrPort(peer.Addr)
	if err != nil {
		return Daemon{}, connect.NewError(connect.CodeInternal, fmt.Errorf("caller's address: %w", err))
	}
	d, ok := r.caller(addr.Addr())
	if !ok {
		return Daemon{}, connect.NewError(connect.CodePermissionDenied,
			errors.New("only provisioners on the mesh may call this"))
	}
	d.Tags = jobtags.Normal(d.Tags)
	return d, nil
}

type stream = connect.BidiStream[provisionerpb.DaemonMessage, provisionerpb.ServerMessage]

// Session serves one daemon until its stream ends.
func (r *rpc) Session(ctx context.Context, st *stream) error {
	daemon, err := r.daemon(st.Peer())
	if err != nil {
		return err
	}
	wire, err := rpcwire.From(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return connect.NewError(connect.CodeUnavailable, errStopping)
	}
	r.streams.Add(1)
	r.mu.Unlock()
	defer r.streams.Done()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopped := context.AfterFunc(r.ctx, func() { cancel(errStopping) })
	defer stopped()
	in := newInbox()
	var helpers sync.WaitGroup
	helpers.Go(func() { // reads, so that this goroutine can apply
		for {
			m, err := st.Receive()
			if err == nil {
				err = in.put(ctx, m)
			}
			if err != nil {
				cancel(err)
				return
			}
		}
	})
	err = r.converse(ctx, cancel, daemon, st, in, wire, &helpers)
	cancel(err)
	wire.End(rpcError(err))
	helpers.Wait()
	return rpcError(err)
}

// converse runs the session from Hello on.
func (r *rpc) converse(ctx context.Context, cancel context.CancelCauseFunc, daemon Daemon, st *stream, in *inbox, wire *rpcwire.Wire, helpers *sync.WaitGroup) error {
	x, err := r.open(ctx, daemon, in, cancel)
	if refused, ok := errors.AsType[*refusedError](err); ok {
		r.log.Warn("provisioner refused", "peer", daemon.Name, "reason", refused.reason)
		return st.Send(&provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Refused{Refused: &provisionerpb.Refused{Reason: refused.reason}}})
	}
	if err != nil {
		r.hold(err)
		return err
	}
	defer r.close(x)
	helpers.Go(func() {
		for {
			select {
			case m := <-x.out:
				err := wire.AwaitWrite(sendTimeout)
				if err == nil {
					err = st.Send(m)
				}
				if err != nil {
					cancel(err)
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return r.receive(ctx, x)
}

// refusedError ends a session for good.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return e.reason }

func rpcError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return connect.NewError(connect.CodeUnavailable, errors.New("the session ended"))
	}
	return connect.NewError(connect.CodeUnavailable, err)
}

// open receives the Hello, settles the leases it names, and registers the session.
func (s *Service) open(
	ctx context.Context, daemon Daemon, in *inbox, cancel context.CancelCauseFunc,
) (_ *session, err error) {
	var hello *provisionerpb.Hello
	select {
	case <-in.arrived:
		if first := in.take(1); len(first) > 0 {
			hello = first[0].GetHello()
		}
	case <-time.After(helloTimeout):
		return nil, errSilent
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if hello == nil {
		return nil, errors.New("the session must begin with hello")
	}
	if v := hello.GetProtocolVersion(); v != protocolVersion {
		return nil, &refusedError{fmt.Sprintf("The server speaks protocol version %d, not %d: run the same release on both sides.", protocolVersion, v)}
	}
	tags, err := json.Marshal(daemon.Tags)
	if err != nil {
		return nil, fmt.Errorf("encode tags: %w", err)
	}
	if daemon.Organization == uuid.Nil {
		org, err := s.opts.DB.GetDefaultOrganization(ctx)
		if err != nil {
			return nil, fmt.Errorf("read organization: %w", err)
		}
		daemon.Organization = org.ID
	}
	x := &session{
		daemon: daemon, tags: tags, untagged: len(jobtags.Own(daemon.Tags)) == 0, org: daemon.Organization, cancel: cancel, in: in,
		out: make(chan *provisionerpb.ServerMessage, outgoing), offers: map[uuid.UUID]int64{}, leases: map[uuid.UUID]int64{},
	}
	s.replace(daemon.ID)
	row, done, err := s.store(ctx, x, hello)
	if err != nil {
		return nil, err
	}
	// Until the session is in the table, a failure must also end it in the database.
	defer func() {
		if done(); err != nil {
			s.closeFailed(x)
		}
	}()
	x.opened = row.LastSeenAt
	welcome, canceling, err := s.settle(ctx, x, hello)
	if err != nil {
		return nil, err
	}
	x.send(&provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Welcome{
		Welcome: welcome,
	}}) // before anything else is sent
	s.mu.Lock()
	s.sessions[daemon.ID] = x
	for id := range x.leases {
		delete(s.deadlines, id)
	}
	s.mu.Unlock()
	for _, id := range canceling {
		s.cancelRequested(id.String())
	}
	s.log.Info("provisioner connected", "peer", daemon.Name, "leases", len(welcome.GetAcks()))
	// Users who wait for a provisioner learn that one has come.
	if err := s.opts.PubSub.Publish(ctx, channelQueue, ""); err != nil {
		s.log.Warn("cannot announce queue", "err", err)
	}
	return x, nil
}

// store records that the daemon's session begins. After success the caller calls done when the session is in the table,
// or has ended.
func (s *Service) store(
	ctx context.Context, x *session, hello *provisionerpb.Hello,
) (row dbsqlc.ProvisionerDaemon, done func(), err error) {
	daemon := x.daemon
	// A name becomes free, even for a daemon with another credential, when its daemon is gone and holds no jobs.
	if err := s.opts.DB.ForgetProvisionerName(ctx, dbsqlc.ForgetProvisionerNameParams{
		OrganizationID: x.org, Name: daemon.Name, KeepID: daemon.ID,
	}); err != nil {
		return row, nil, fmt.Errorf("free provisioner's name: %w", err)
	}
	var keyID *uuid.UUID
	if daemon.KeyID != uuid.Nil {
		keyID = &daemon.KeyID
	}
	s.mu.Lock()
	s.opening[daemon.ID]++
	s.mu.Unlock()
	done = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.opening[daemon.ID]--; s.opening[daemon.ID] == 0 {
			delete(s.opening, daemon.ID)
		}
	}
	row, err = s.opts.DB.OpenProvisioner(ctx, dbsqlc.OpenProvisionerParams{
		ID: daemon.ID, OrganizationID: x.org, Name: daemon.Name,
		Version: database.Visible(cut(hello.GetVersion(), 256)), Tags: x.tags, BuiltIn: daemon.BuiltIn,
		KeyID: keyID, KeyName: daemon.keyName(), ServerID: &s.id,
	})
	switch {
	case database.IsUniqueViolation(err, ""):
		err = &refusedError{
			fmt.Sprintf("The name %q belongs to another provisioner: choose another with --name.", daemon.Name),
		}
	case database.IsForeignKeyViolation(err, ""):
		err = &refusedError{"The provisioner key has been deleted."}
	case err != nil:
		err = fmt.Errorf("store provisioner: %w", err)
	default:
		return row, done, nil
	}
	done() // the next heartbeat corrects a commit whose answer was lost
	return row, nil, err
}

// closeFailed ends a session in the database that could not be opened.
func (s *Service) closeFailed(x *session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), queryTimeout)
	defer cancel()
	s.markOffline(ctx, x)
}

// replace ends an earlier session of the daemon, which a broken connection may have left, and waits until it is gone.
func (s *Service) replace(id uuid.UUID) {
	for {
		s.mu.Lock()
		old := s.sessions[id]
		s.mu.Unlock()
		if old == nil {
			return
		}
		old.cancel(errReplaced)
		s.forget(old)
	}
}

// settle compares the daemon's leases with the database: which of them hold, and which of their events have been
// applied.
func (s *Service) settle(
	ctx context.Context, x *session, hello *provisionerpb.Hello,
) (*provisionerpb.Welcome, []uuid.UUID, error) {
	welcome := &provisionerpb.Welcome{Grace: durationpb.New(s.opts.Grace)}
	var canceling []uuid.UUID
	kept := map[uuid.UUID]bool{}
	for _, lease := range hello.GetLeases() {
		id, err := uuid.FromBytes(lease.GetJobId())
		if err != nil {
			return nil, nil, fmt.Errorf("lease of hello: %w", err)
		}
		revoke := func(reason string) {
			welcome.Revoked = append(welcome.Revoked, &provisionerpb.Revoked{
				JobId: lease.GetJobId(), Epoch: lease.GetEpoch(), Reason: reason,
			})
		}
		job, err := s.opts.DB.GetJob(ctx, id)
		switch {
		case database.IsNotFound(err):
			revoke("the server does not know this job")
		case err != nil:
			return nil, nil, fmt.Errorf("read leased job: %w", err)
		case uint64(job.Epoch) != lease.GetEpoch() || job.WorkerID == nil || *job.WorkerID != x.daemon.ID:
			revoke(staleReason(job))
		case ended(job.Status) && (!lease.GetFinished() || uint64(job.LastSeq) < lease.GetLastSeq()):
			revoke(staleReason(job))
		default:
			welcome.Acks = append(welcome.Acks, &provisionerpb.Ack{
				JobId: lease.GetJobId(), Epoch: lease.GetEpoch(), Seq: uint64(job.LastSeq),
			})
			kept[id] = true
			if !ended(job.Status) {
				x.leases[id] = job.Epoch
			}
			if job.Status == statusCanceling {
				canceling = append(canceling, id)
			}
		}
	}
	running, err := s.opts.DB.ListWorkerJobs(ctx, &x.daemon.ID)
	if err != nil {
		return nil, nil, fmt.Errorf("list the daemon's jobs: %w", err)
	}
	for _, job := range running {
		if kept[job.ID] {
			continue
		}
		if err := s.disown(ctx, job); err != nil {
			return nil, nil, err
		}
	}
	return welcome, canceling, nil
}

func staleReason(job dbsqlc.ProvisionerJob) string {
	if ended(job.Status) {
		return "the job has ended: " + job.Status
	}
	return "the job was given to another provisioner"
}

// disown handles a job that its daemon does not know. A daemon writes down a job before it runs it. So a job of which
// it never reported anything was not begun, and waits again; any other job was lost with the daemon's disk.
func (s *Service) disown(ctx context.Context, job dbsqlc.ProvisionerJob) error {
	if job.LastSeq == 0 && job.Status == statusRunning {
		return s.requeue(ctx, job.ID, job.Epoch)
	}
	return s.endNow(ctx, job.ID, job.Epoch, &provisionerpb.Result{
		Error: "The provisioner was restarted and no longer knows this job." + lostNote,
	})
}

func (s *Service) requeue(ctx context.Context, id uuid.UUID, epoch int64) error {
	if err := s.opts.DB.RequeueJob(ctx, dbsqlc.RequeueJobParams{ID: id, Epoch: epoch}); err != nil {
		return fmt.Errorf("requeue job: %w", err)
	}
	// The job was canceled meanwhile. No daemon runs it, so it has ended.
	return s.endIfCanceling(ctx, id, epoch)
}

func (s *Service) endIfCanceling(ctx context.Context, id uuid.UUID, epoch int64) error {
	job, err := s.opts.DB.GetJob(ctx, id)
	if err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	if job.Status != statusCanceling || job.Epoch != epoch {
		return nil
	}
	return s.endNow(ctx, id, epoch, &provisionerpb.Result{Canceled: true, Error: "The job was canceled before it ran."})
}

// forget removes a session from the table: its leases wait for the daemon's return, its unaccepted offers wait for
// another daemon.
func (s *Service) forget(x *session) (offers map[uuid.UUID]int64, was bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[x.daemon.ID] != x {
		return nil, false
	}
	delete(s.sessions, x.daemon.ID)
	for id, epoch := range x.leases {
		s.deadlines[id] = deadline{epoch: epoch, at: time.Now().Add(s.patience())}
	}
	offers, x.offers = x.offers, map[uuid.UUID]int64{}
	s.recount.Poke()
	return offers, true
}

// close ends a session, also in the database.
func (s *Service) close(x *session) {
	offers, was := s.forget(x)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), queryTimeout)
	defer cancel()
	s.giveBack(ctx, offers)
	if !was {
		return // the daemon has a newer session
	}
	s.markOffline(ctx, x)
}

func (s *Service) markOffline(ctx context.Context, x *session) {
	if err := s.opts.DB.CloseProvisioner(ctx, dbsqlc.CloseProvisionerParams{
		ID: x.daemon.ID, ServerID: &s.id, LastSeenAt: x.opened,
	}); err != nil {
		s.log.Warn("cannot mark provisioner offline, the next heartbeat will", "peer", x.daemon.Name, "err", err)
	}
	s.mu.Lock()
	leases := len(x.leases)
	s.mu.Unlock()
	s.log.Info("provisioner disconnected", "peer", x.daemon.Name, "leases", leases)
}

// Cut ends the session of a daemon that lost its access, for the given reason. The daemon gets no time to return: its
// jobs fail as soon as it has had the time that a refused daemon needs to stop what it runs. Cut blocks for a few
// queries.
func (s *Service) Cut(ctx context.Context, daemon uuid.UUID, reason string) error {
	s.mu.Lock()
	x := s.sessions[daemon]
	s.mu.Unlock()
	if x != nil {
		x.cancel(errCut)
		if offers, was := s.forget(x); was {
			s.giveBack(ctx, offers)
			s.markOffline(ctx, x)
		}
	}
	leased, err := s.opts.DB.ListWorkerJobs(ctx, &daemon)
	if err != nil {
		return fmt.Errorf("list the daemon's jobs: %w", err)
	}
	s.mu.Lock()
	for _, job := range leased {
		s.deadlines[job.ID] = deadline{
			epoch: job.Epoch, at: time.Now().Add(min(s.opts.Fence, cutFence)), reason: reason,
		}
	}
	s.mu.Unlock()
	s.recount.Poke()
	if err := s.opts.PubSub.Publish(ctx, channelQueue, ""); err != nil { // users who wait for the daemon learn that it is gone
		s.log.Warn("cannot announce queue", "err", err)
	}
	return nil
}

// giveBack makes jobs that were offered but not accepted wait again. It schedules a retry for each change that the
// database does not take now.
func (s *Service) giveBack(ctx context.Context, offers map[uuid.UUID]int64) {
	for id, epoch := range offers {
		if err := s.requeue(ctx, id, epoch); err != nil {
			s.log.Warn("cannot return offered job, trying again", "job", id, "err", err)
			s.mu.Lock()
			s.deadlines[id] = deadline{epoch: epoch, at: time.Now().Add(retryAfter), giveBack: true}
			s.mu.Unlock()
			s.recount.Poke()
		}
	}
}

func cut(text string, limit int) string { return text[:min(len(text), limit)] }
