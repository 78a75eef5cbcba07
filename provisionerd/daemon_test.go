package provisionerd_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb/provisionerpbconnect"
)

// Package coderd/jobs tests the daemon together with the real server. These tests need a server that misbehaves.

type stream = connect.BidiStream[provisionerpb.DaemonMessage, provisionerpb.ServerMessage]

type server struct {
	provisionerpbconnect.UnimplementedProvisionerServiceHandler
	session func(context.Context, *stream) error
}

func (s server) Session(ctx context.Context, st *stream) error { return s.session(ctx, st) }

// serve serves sessions on loopback and returns the dialer.
func serve(t *testing.T, session func(context.Context, *stream) error) func(context.Context) (net.Conn, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(provisionerpbconnect.NewProvisionerServiceHandler(server{session: session}))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: mux, Protocols: protocols}
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-done })
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}
}

type executor func(context.Context, <-chan struct{}, job.Run) *provisionerpb.Result

func (executor) Name() string { return "test" }
func (executor) Close() error { return nil }
func (executor) Recover(_ context.Context, _ [16]byte, _ uint64, known job.Known) (job.Remains, error) {
	return job.Remains{State: known.Checkpoint}, nil
}
func (e executor) Run(ctx context.Context, stop <-chan struct{}, run job.Run) *provisionerpb.Result {
	return e(ctx, stop, run)
}

func start(t *testing.T, dial func(context.Context) (net.Conn, error), run executor) *provisionerd.Daemon {
	t.Helper()
	d := provisionerd.New(provisionerd.Options{StateDir: t.TempDir(), Executor: run, Dial: dial})
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		if err := d.Stop(gone); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return d
}

func welcome() *provisionerpb.ServerMessage {
	return &provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Welcome{Welcome: &provisionerpb.Welcome{Grace: durationpb.New(time.Minute)}}}
}

func TestStopBeforeStartAndTwice(t *testing.T) {
	t.Parallel()
	d := provisionerd.New(provisionerd.Options{StateDir: t.TempDir()})
	if err := errors.Join(d.Stop(t.Context()), d.Stop(t.Context())); err != nil {
		t.Error(err)
	}
	if err := d.Start(); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("start after stop: %v", err)
	}
	testwait.For(t, "the end", d.Done())
}

func TestRefusedEndsTheDaemon(t *testing.T) {
	t.Parallel()
	sessions := make(chan struct{}, 100)
	dial := serve(t, func(_ context.Context, st *stream) error {
		sessions <- struct{}{}
		if _, err := st.Receive(); err != nil {
			return err
		}
		return st.Send(&provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Refused{Refused: &provisionerpb.Refused{Reason: "the name is taken"}}})
	})
	d := provisionerd.New(provisionerd.Options{StateDir: t.TempDir(), Executor: executor(nil), Dial: dial})
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the end", d.Done())
	err := d.Err()
	if stopped := d.Stop(t.Context()); stopped != nil {
		t.Errorf("stop: %v", stopped)
	}
	if fault.CodeOf(err) != fault.Forbidden || !strings.Contains(err.Error(), "the name is taken") {
		t.Errorf("refused: %v", err)
	}
	if len(sessions) != 1 {
		t.Errorf("%d sessions, want 1", len(sessions))
	}
}

func TestFolderIsOneDaemons(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dial := func(context.Context) (net.Conn, error) { return nil, errors.New("no server") }
	one := provisionerd.New(provisionerd.Options{StateDir: dir, Executor: executor(nil), Dial: dial})
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	two := provisionerd.New(provisionerd.Options{StateDir: dir, Executor: executor(nil), Dial: dial})
	if err := two.Start(); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("second daemon in the folder: %v", err)
	}
	if err := errors.Join(one.Stop(t.Context()), two.Stop(t.Context())); err != nil {
		t.Fatal(err)
	}
	three := provisionerd.New(provisionerd.Options{StateDir: dir, Executor: executor(nil), Dial: dial})
	if err := errors.Join(three.Start(), three.Stop(t.Context())); err != nil {
		t.Errorf("after the first has gone: %v", err)
	}
}

// TestNothingRunsUnconfirmed: an Accept may get lost, so nothing runs before the server has confirmed it.
func TestNothingRunsUnconfirmed(t *testing.T) {
	t.Parallel()
	accepted, confirm := make(chan *provisionerpb.Accept), make(chan bool)
	revoked := make(chan struct{})
	dial := serve(t, func(ctx context.Context, st *stream) error {
		m, err := st.Receive()
		if err != nil {
			return err
		}
		if leases := m.GetHello().GetLeases(); len(leases) > 0 {
			// In the second session the job already belongs to another daemon.
			w := welcome()
			w.GetWelcome().Revoked = []*provisionerpb.Revoked{{JobId: leases[0].GetJobId(), Epoch: leases[0].GetEpoch(), Reason: "given away"}}
			if err := st.Send(w); err != nil {
				return err
			}
			if m, err = st.Receive(); err == nil && m.GetReady().GetSlots() == 1 {
				close(revoked)
			}
			<-ctx.Done()
			return nil
		}
		if err := st.Send(welcome()); err != nil {
			return err
		}
		if _, err := st.Receive(); err != nil { // ready
			return err
		}
		if err := st.Send(&provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Offer{Offer: &provisionerpb.Offer{JobId: make([]byte, 16), Epoch: 1}}}); err != nil {
			return err
		}
		if m, err = st.Receive(); err != nil {
			return err
		}
		accepted <- m.GetAccept()
		<-confirm
		return errors.New("cut before the confirmation")
	})
	start(t, dial, func(context.Context, <-chan struct{}, job.Run) *provisionerpb.Result {
		t.Error("an unconfirmed job ran")
		return &provisionerpb.Result{}
	})
	if a := testwait.For(t, "the accept", accepted); a.GetEpoch() != 1 {
		t.Errorf("accepted: %v", a)
	}
	close(confirm)
	testwait.For(t, "the free slot", revoked)
}

// TestStopTellsWhoWaits checks that the log of a job says how long a daemon that stops waits for it, and that the daemon's own log does.
func TestStopTellsWhoWaits(t *testing.T) {
	t.Parallel()
	began, told := make(chan struct{}), make(chan string, 1)
	dial := serve(t, func(_ context.Context, st *stream) error {
		if _, err := st.Receive(); err != nil {
			return err
		}
		if err := st.Send(welcome()); err != nil {
			return err
		}
		if _, err := st.Receive(); err != nil {
			return err
		}
		id := make([]byte, 16)
		if err := errors.Join(
			st.Send(&provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Offer{Offer: &provisionerpb.Offer{JobId: id, Epoch: 1}}}),
			st.Send(&provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Ack{Ack: &provisionerpb.Ack{JobId: id, Epoch: 1}}}),
		); err != nil {
			return err
		}
		for {
			m, err := st.Receive()
			if err != nil {
				return err
			}
			e := m.GetEvent()
			for _, line := range e.GetLog().GetLines() {
				if line.GetStage() == "Stopping" {
					told <- line.GetOutput()
				}
			}
			if e != nil {
				ack := &provisionerpb.Ack{JobId: e.GetJobId(), Epoch: e.GetEpoch(), Seq: e.GetSeq()}
				if err := st.Send(&provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Ack{Ack: ack}}); err != nil {
					return err
				}
			}
		}
	})
	var log bytes.Buffer // read once the daemon has ended
	end := make(chan struct{})
	d := provisionerd.New(provisionerd.Options{
		StateDir: t.TempDir(), Dial: dial, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Executor: executor(func(context.Context, <-chan struct{}, job.Run) *provisionerpb.Result {
			close(began)
			<-end
			return &provisionerpb.Result{}
		}),
	})
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the job", began)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Hour)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- d.Stop(ctx) }()
	const want = "The provisioner is stopping. It interrupts this job if it has not ended in 1"
	if text := testwait.For(t, "the line for who waits", told); !strings.HasPrefix(text, want) && !strings.HasPrefix(text, strings.TrimSuffix(want, "1")+"99h59m") {
		t.Errorf("the job's log says %q", text)
	}
	close(end)
	if err := testwait.For(t, "the end", stopped); err != nil {
		t.Error(err)
	}
	if text := log.String(); !strings.Contains(text, `msg="waiting for running jobs" jobs=1 left=`) {
		t.Errorf("the daemon's log does not say what it waits for:\n%s", text)
	}
}

// TestRevokedWhileRunning checks that revoking the lease of a running job stops the job, and that the daemon continues to serve.
func TestRevokedWhileRunning(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	free := make(chan struct{})
	dial := serve(t, func(_ context.Context, st *stream) error {
		key := func() ([]byte, uint64) { return make([]byte, 16), 1 }
		if _, err := st.Receive(); err != nil {
			return err
		}
		if err := st.Send(welcome()); err != nil {
			return err
		}
		if _, err := st.Receive(); err != nil {
			return err
		}
		id, epoch := key()
		if err := st.Send(&provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Offer{Offer: &provisionerpb.Offer{JobId: id, Epoch: epoch}}}); err != nil {
			return err
		}
		if err := st.Send(&provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Ack{Ack: &provisionerpb.Ack{JobId: id, Epoch: epoch}}}); err != nil {
			return err
		}
		<-began
		if err := st.Send(&provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Revoked{Revoked: &provisionerpb.Revoked{JobId: id, Epoch: epoch, Reason: "given away"}}}); err != nil {
			return err
		}
		for {
			m, err := st.Receive()
			if err != nil {
				return err
			}
			if m.GetReady().GetSlots() == 1 {
				close(free)
			}
		}
	})
	start(t, dial, func(_ context.Context, stop <-chan struct{}, _ job.Run) *provisionerpb.Result {
		close(began)
		<-stop
		return &provisionerpb.Result{Error: "interrupted"}
	})
	testwait.For(t, "the free slot", free)
}

// TestOnce checks that a daemon for one job takes no second one, says so, and has served when the server has the result.
func TestOnce(t *testing.T) {
	t.Parallel()
	began, end, acknowledge, full := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	offer := func(n byte) *provisionerpb.ServerMessage {
		return &provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Offer{Offer: &provisionerpb.Offer{JobId: append(make([]byte, 15), n), Epoch: 1}}}
	}
	ack := func(job []byte, seq uint64) *provisionerpb.ServerMessage {
		return &provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Ack{Ack: &provisionerpb.Ack{JobId: job, Epoch: 1, Seq: seq}}}
	}
	dial := serve(t, func(_ context.Context, st *stream) error {
		if _, err := st.Receive(); err != nil {
			return err
		}
		if err := st.Send(welcome()); err != nil {
			return err
		}
		if _, err := st.Receive(); err != nil {
			return err
		}
		if err := errors.Join(st.Send(offer(1)), st.Send(ack(offer(1).GetOffer().GetJobId(), 0))); err != nil {
			return err
		}
		<-began
		if err := st.Send(offer(2)); err != nil {
			return err
		}
		for {
			m, err := st.Receive()
			if err != nil {
				return err
			}
			if a := m.GetAccept(); a != nil && a.GetJobId()[15] == 2 {
				t.Error("a second job was accepted")
			}
			if e := m.GetEvent(); e != nil {
				if e.GetResult() != nil {
					close(full)
					<-acknowledge
				}
				if err := st.Send(ack(e.GetJobId(), e.GetSeq())); err != nil {
					return err
				}
			}
		}
	})
	d := provisionerd.New(provisionerd.Options{
		StateDir: t.TempDir(), Dial: dial, Once: true,
		Executor: executor(func(context.Context, <-chan struct{}, job.Run) *provisionerpb.Result {
			close(began) // panics for a second job
			<-end
			return &provisionerpb.Result{}
		}),
	})
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	testwait.For(t, "the job", began)
	close(end)
	testwait.For(t, "the result", full)
	if d.Served(over) || !d.Draining() {
		t.Error("the daemon has served before the server has the result, or takes jobs")
	}
	close(acknowledge)
	if !d.Served(t.Context()) {
		t.Error("the daemon has not served")
	}
	if err := d.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
