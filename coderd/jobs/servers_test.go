package jobs_test

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// servers returns n servers on one database. Each has connections to the database of its own, so that one can be killed.
func servers(t *testing.T, n int, change func(*jobs.Options)) []*world {
	t.Helper()
	all := []*world{newWorld(t, change)}
	for len(all) < n {
		first := all[0]
		db, err := database.Open(t.Context(), first.DB.Pool.Config().ConnString(), first.opts.Logger)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		w := &world{Rows: first.Rows, user: first.user, file: first.file, opts: first.opts, daemons: map[netip.Addr]jobs.Daemon{}}
		w.notify = pubsub.NewPostgres(db, first.opts.Logger)
		t.Cleanup(w.notify.Close)
		w.opts.DB, w.opts.PubSub = db, w.notify
		w.startServer()
		t.Cleanup(w.stopServer)
		all = append(all, w)
	}
	return all
}

// kill ends a server other than the first: its streams break, and it changes nothing in the database any more.
func (w *world) kill() {
	w.notify.Close()
	w.opts.DB.Pool.Close()
	w.stopServer()
}

// beats waits until servers have renewed their rows several times, so that each has looked at the others.
func (w *world) beats(servers int) {
	w.T.Helper()
	begin := time.Now()
	testwait.Until(w.T, "the servers have looked at each other",
		w.Counts(servers, "SELECT count(*) FROM servers WHERE beat_at > $1::timestamptz + interval '1 second'", begin))
}

// TestServersClaimOnce checks that the daemons of three servers share one queue: each job is offered once, and no server takes the jobs
// that another one's free daemon waits for.
func TestServersClaimOnce(t *testing.T) {
	t.Parallel()
	all := servers(t, 3, nil)
	const daemons, each = 2, 5 // per server and per daemon
	var ids []uuid.UUID
	for i := range len(all) * daemons * each {
		ids = append(ids, all[i%len(all)].insert(nil))
	}
	var mu sync.Mutex
	offered := map[uuid.UUID]int{}
	var working sync.WaitGroup
	for s, w := range all {
		for n := range daemons {
			r := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: fmt.Sprintf("s%dd%d", s, n)})
			working.Go(func() {
				for range each {
					offer := r.accept()
					mu.Lock()
					offered[uuid.UUID(offer.GetJobId())]++
					mu.Unlock()
					r.seq = 0
					r.event(offer, &provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: succeeded("s")}})
				}
			})
		}
	}
	working.Wait()
	for _, id := range ids {
		row := all[0].await(id, "succeeded")
		if offered[id] != 1 || row.Epoch != 1 {
			t.Errorf("job %s was accepted %d times, in epoch %d", id, offered[id], row.Epoch)
		}
		if diff := cmp.Diff([]string{"result s"}, all[0].lines(id)); diff != "" {
			t.Errorf("recorded (-want +got):\n%s", diff)
		}
	}
}

// TestServerKilledBetweenClaimAndStart checks a job that a server had offered when it was killed. The daemon cannot have begun it. Once the
// daemon is back at another server, the job waits again, and runs once.
func TestServerKilledBetweenClaimAndStart(t *testing.T) {
	t.Parallel()
	all := servers(t, 3, nil)
	as := jobs.Daemon{ID: uuid.New(), Name: "raw"}
	r := all[1].raw(t, as)
	r.send(slot(1))
	id := all[0].insert(nil)
	lost := next[*provisionerpb.ServerMessage_Offer](r).Offer
	all[1].kill()
	for range r.messages { // until the stream ends
	}

	back := all[2].raw(t, as)
	offer := back.accept()
	if uuid.UUID(offer.GetJobId()) != id || offer.GetEpoch() <= lost.GetEpoch() {
		t.Errorf("offered job %x in epoch %d after %d", offer.GetJobId(), offer.GetEpoch(), lost.GetEpoch())
	}
	// The killed server's offer is void.
	back.seq = 0
	back.event(lost, checkpoint("stolen"))
	next[*provisionerpb.ServerMessage_Revoked](back)
	back.seq = 0
	back.event(offer, &provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: succeeded("s")}})
	all[0].await(id, "succeeded")
	if diff := cmp.Diff([]string{"result s"}, all[0].lines(id)); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

// TestServerKilledWithDaemons checks the jobs of a killed server's daemons: one that returns to another server continues its job, and
// one that stays away loses its job after the grace period, by whichever server.
func TestServerKilledWithDaemons(t *testing.T) {
	t.Parallel()
	// The grace period is long: a busy machine lets a daemon return late.
	all := servers(t, 3, func(d *jobs.Options) { d.Heartbeat = 20 * time.Millisecond })
	begin := func(name, tag string) (uuid.UUID, jobs.Daemon, *provisionerpb.Offer) {
		as := jobs.Daemon{ID: uuid.New(), Name: name, Tags: map[string]string{"pool": tag}}
		id := all[0].insert(map[string]string{"pool": tag})
		r := all[1].raw(t, as)
		offer := r.accept()
		r.event(offer, checkpoint("s1"))
		next[*provisionerpb.ServerMessage_Ack](r)
		return id, as, offer
	}
	returns, as, offer := begin("returns", "a")
	stays, away, _ := begin("stays away", "b")
	all[1].kill()

	back := all[2].raw(t, as, &provisionerpb.Lease{JobId: offer.GetJobId(), Epoch: offer.GetEpoch(), LastSeq: 1})
	if acks := next[*provisionerpb.ServerMessage_Welcome](back).Welcome.GetAcks(); len(acks) != 1 || acks[0].GetSeq() != 1 {
		t.Errorf("the welcome acknowledges %v, want event 1", acks)
	}
	all[0].beats(2)
	all[0].offlineFor(away.ID, 2*time.Minute)
	row := all[0].await(stays, "failed")
	if !strings.Contains(row.Error, "has been offline for 1m0s") || all[0].online(away.ID) {
		t.Errorf("the job of the daemon that stays away: %q; it is online: %t", row.Error, all[0].online(away.ID))
	}
	if row := all[0].row(returns); row.Status != "running" {
		t.Fatalf("the job of the daemon that returned is %s: %s", row.Status, row.Error)
	}
	// While its server's heartbeats are late, which they are on a busy machine, it is not online.
	testwait.Until(t, "the daemon that returned is online", func() error {
		return testwait.Unless(all[0].online(as.ID), "it is offline")
	})
	back.seq = 1
	back.event(offer, &provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: succeeded("s2")}})
	all[0].await(returns, "succeeded")
	if diff := cmp.Diff([]string{"checkpoint s1", "result s2"}, all[0].lines(returns)); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

// TestJobGetsItsReasonWhileADaemonComes checks that a daemon gets a job which another server had locked, to write into its log why it waits, when the
// daemon became free.
func TestJobGetsItsReasonWhileADaemonComes(t *testing.T) {
	t.Parallel()
	all := servers(t, 2, nil)
	w, other := all[0], all[1]
	w.Exec("CREATE FUNCTION await_test() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$")
	w.Exec("CREATE TRIGGER await_test BEFORE INSERT ON provisioner_job_logs FOR EACH ROW WHEN (NEW.stage = 'Queued') EXECUTE FUNCTION await_test()")
	lock, err := w.DB.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	if _, err := lock.Exec(t.Context(), "SELECT pg_advisory_lock(1)"); err != nil {
		t.Fatal(err)
	}

	w.stopServer() // so that the other server writes the reason
	waiting := other.insert(nil)
	testwait.Until(t, "the other server writes the reason", w.Counts(1, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
	w.startServer()
	r := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "raw"})
	later := w.insert(nil)
	offer := r.accept()
	if got := uuid.UUID(offer.GetJobId()); got != later {
		t.Fatalf("got job %s, want %s: the lock does not hide %s", got, later, waiting)
	}
	r.send(slot(1)) // the server looks for a job in vain
	r.event(offer, logged(provisionerpb.LogLevel_LOG_LEVEL_INFO, "line"))
	next[*provisionerpb.ServerMessage_Ack](r)
	if _, err := lock.Exec(t.Context(), "SELECT pg_advisory_unlock(1)"); err != nil {
		t.Fatal(err)
	}
	if got := uuid.UUID(next[*provisionerpb.ServerMessage_Offer](r).Offer.GetJobId()); got != waiting {
		t.Errorf("got job %s, want %s", got, waiting)
	}
}
