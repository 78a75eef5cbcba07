package coderdtest

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb/provisionerpbconnect"
)

// Daemon is a provisioner that speaks the real protocol over loopback. It takes a job only when the test calls Next.
type Daemon struct {
	t      testing.TB
	id     uuid.UUID
	offers chan *provisionerpb.Offer
	acks   chan *provisionerpb.Ack
	cancel context.CancelFunc
	reader sync.WaitGroup

	mu     sync.Mutex // guards sends
	stream *connect.BidiStreamForClient[provisionerpb.DaemonMessage, provisionerpb.ServerMessage]
}

// Daemon returns the server's provisioner, which joins at the first call.
func (s *Server) Daemon() *Daemon {
	s.T.Helper()
	return s.daemon()
}

// Replace kills the daemon and lets its successor, which has none of its jobs, join a server of the same database.
func (d *Daemon) Replace(at *Server) *Daemon {
	d.t.Helper()
	d.close()
	return at.joinDaemon(d.id)
}

func (s *Server) startDaemon() *Daemon { return s.joinDaemon(uuid.New()) }

func (s *Server) joinDaemon(id uuid.UUID) *Daemon {
	t := s.T
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(s.Jobs.RPCHandler(func(netip.Addr) (jobs.Daemon, bool) {
		return jobs.Daemon{
			ID: id, Name: "test",
		}, true
	}))
	url := ServeRPC(t, mux)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	d := &Daemon{
		t: t, id: id, offers: make(chan *provisionerpb.Offer, 64), acks: make(chan *provisionerpb.Ack, 64),
		cancel: cancel,
	}
	client := RPCClient(t, new(net.Dialer).DialContext)
	d.stream = provisionerpbconnect.NewProvisionerServiceClient(client, url).Session(ctx)
	d.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Hello{Hello: &provisionerpb.Hello{
		ProtocolVersion: 2, Version: "test",
	}}})
	welcomed := make(chan struct{})
	d.reader.Go(func() {
		for {
			m, err := d.stream.Receive()
			if err != nil {
				close(d.offers)
				return
			}
			switch m := m.GetMessage().(type) {
			case *provisionerpb.ServerMessage_Welcome: // once for each stream
				close(welcomed)
			case *provisionerpb.ServerMessage_Offer:
				d.offers <- m.Offer
			case *provisionerpb.ServerMessage_Ack:
				d.acks <- m.Ack
			}
		}
	})
	d.reader.Go(func() { // silence ends a session
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				d.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Ping{Ping: &provisionerpb.Ping{}}})
			}
		}
	})
	testwait.For(t, "the test's provisioner is welcomed", welcomed) // from then on the queue counts on this daemon
	t.Cleanup(d.close)
	return d
}

// send ignores errors: a broken stream shows when the test waits for a message from it.
func (d *Daemon) send(m *provisionerpb.DaemonMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.stream.Send(m)
}

func (d *Daemon) close() {
	d.cancel()
	d.mu.Lock()
	_ = d.stream.CloseRequest() // while a request's body is open, HTTP/2 does not notice that its context has ended
	d.mu.Unlock()
	d.reader.Wait()
}

// Job is a job that the daemon has accepted.
type Job struct {
	*provisionerpb.Offer
	daemon *Daemon
	seq    uint64
}

// Ready offers a slot for a job, for jobs that end before the daemon gets them.
func (d *Daemon) Ready() {
	d.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Ready{Ready: &provisionerpb.Ready{
		Slots: 1,
	}}})
}

// Next accepts the next available job.
func (d *Daemon) Next() *Job {
	d.t.Helper()
	offer := d.Ignore()
	d.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Accept{Accept: &provisionerpb.Accept{
		JobId: offer.GetJobId(), Epoch: offer.GetEpoch(),
	}}})
	return &Job{Offer: offer, daemon: d}
}

// Ignore waits for the next offer and does not accept it.
func (d *Daemon) Ignore() *provisionerpb.Offer {
	d.t.Helper()
	d.Ready()
	offer := testwait.For(d.t, "a job is offered", d.offers)
	if offer == nil {
		d.t.Fatal("the provisioner's stream has ended")
	}
	return offer
}

// event sends one event and waits until it is applied.
func (j *Job) event(e *provisionerpb.Event) {
	j.daemon.t.Helper()
	j.seq++
	e.JobId, e.Epoch, e.Seq, e.At = j.GetJobId(), j.GetEpoch(), j.seq, timestamppb.Now()
	j.daemon.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Event{Event: e}})
	for {
		select {
		case ack := <-j.daemon.acks:
			if string(ack.GetJobId()) == string(j.GetJobId()) && ack.GetSeq() >= j.seq {
				return
			}
		case <-time.After(Patience):
			j.daemon.t.Fatalf("event %d was not applied", j.seq)
		}
	}
}

// Checkpoint reports a state.
func (j *Job) Checkpoint(state string) {
	j.daemon.t.Helper()
	j.event(&provisionerpb.Event{Event: &provisionerpb.Event_Checkpoint{Checkpoint: &provisionerpb.Checkpoint{
		State: []byte(state),
	}}})
}

// Changes reports which changes the job has begun or ended.
func (j *Job) Changes(changes ...*provisionerpb.Change) {
	j.daemon.t.Helper()
	j.event(&provisionerpb.Event{Event: &provisionerpb.Event_Log{Log: &provisionerpb.LogBatch{Changes: changes}}})
}

// Resources reports what exists before the job ends.
func (j *Job) Resources(resources ...*provisionerpb.Resource) {
	j.daemon.t.Helper()
	j.event(&provisionerpb.Event{Event: &provisionerpb.Event_Resources{Resources: &provisionerpb.Resources{
		Resources: resources,
	}}})
}

// Finish ends the job.
func (j *Job) Finish(result *provisionerpb.Result) {
	j.daemon.t.Helper()
	j.event(&provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: result}})
}

// Token returns the token of the agent that Resource creates.
func Token(agent uuid.UUID) secret.Token { return secret.Token("token of " + agent.String()) }

// Resource returns a resource with one agent.
func Resource(agent uuid.UUID) *provisionerpb.Resource {
	return &provisionerpb.Resource{Type: "terraform_data", Name: "dev", DailyCost: 2, Agents: []*provisionerpb.Agent{{
		Id: agent[:], Name: "main", Token: Token(agent).Reveal(), Os: "linux", Arch: "amd64",
		ConnectionTimeoutSeconds: 120,
		Scripts:                  []*provisionerpb.Script{{DisplayName: "Startup Script", Script: "true", RunOnStart: true}},
		Apps:                     []*provisionerpb.App{{Slug: "code", Url: "http://localhost:1"}},
	}}}
}

// Built returns the result of a successful build.
func Built(state string, resources ...*provisionerpb.Resource) *provisionerpb.Result {
	return &provisionerpb.Result{Of: &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: &provisionerpb.BuildResult{
		State: []byte(state), Resources: resources,
	}}}
}
