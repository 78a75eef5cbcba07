package jobs_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func (w *world) online(daemon uuid.UUID) (online bool) {
	w.T.Helper()
	if err := w.DB.Pool.QueryRow(context.Background(), "SELECT coalesce((SELECT online FROM provisioner_daemons WHERE id = $1), false)", daemon).Scan(&online); err != nil {
		w.T.Fatal(err)
	}
	return online
}

// awaitOffline waits until a daemon's row says that it is offline: its job may end before, once its server is silent.
func (w *world) awaitOffline(daemon uuid.UUID) {
	w.T.Helper()
	testwait.Until(w.T, "the daemon is offline", func() error {
		return testwait.Unless(!w.online(daemon), "it is online")
	})
}

// offlineFor waits until a daemon's row says that it is offline, and lets it have been so for d, while this server was
// there to hear it.
func (w *world) offlineFor(daemon uuid.UUID, d time.Duration) {
	w.T.Helper()
	w.awaitOffline(daemon)
	w.service.HearFor(d)
	w.Exec("UPDATE provisioner_daemons SET last_seen_at = now() - $2::interval WHERE id = $1", daemon, d)
}

func slot(n uint32) *provisionerpb.DaemonMessage {
	return &provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Ready{Ready: &provisionerpb.Ready{Slots: n}}}
}

// TestLeaseEndsAfterBrokenHello checks that a lease ends the grace period after its daemon left, even when the daemon's last
// message was a Hello that the server refused.
func TestLeaseEndsAfterBrokenHello(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]bool{"a daemon that leaves": false, "a daemon whose hello is broken": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(d *jobs.Options) { d.Grace = 200 * time.Millisecond })
			id := w.insert(nil)
			as := jobs.Daemon{ID: uuid.New(), Name: "raw"}
			t.Run("first", func(t *testing.T) { w.raw(t, as).accept() }) // its end ends the session
			if broken {
				t.Run("second", func(t *testing.T) {
					r := w.raw(t, as, &provisionerpb.Lease{JobId: []byte("bad"), Epoch: 1})
					for range r.messages { // until the server ends it
					}
				})
			}
			w.await(id, "failed")
			w.awaitOffline(as.ID)
		})
	}
}

// TestLeaseEndsAfterOutage checks a daemon that left while the database was unavailable, so that the server could not record
// that. Once the database is back, the daemon is offline, its job fails, and the next job of another daemon runs.
func TestLeaseEndsAfterOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(d *jobs.Options) { d.Heartbeat = 20 * time.Millisecond })
	id := w.insert(nil)
	as := jobs.Daemon{ID: uuid.New(), Name: "raw"}
	t.Run("session", func(t *testing.T) {
		r := w.raw(t, as)
		r.accept()
		w.Exec("ALTER TABLE provisioner_daemons RENAME TO away")
		if err := r.stream.CloseRequest(); err != nil {
			t.Fatal(err)
		}
		for range r.messages { // until the server has tried to record it
		}
	})
	w.Exec("ALTER TABLE away RENAME TO provisioner_daemons")
	w.offlineFor(as.ID, 2*time.Minute)
	w.await(id, "failed")
	w.start("two", nil, nil, nil)
	w.await(w.insert(nil), "succeeded")
}

// TestLeaseOfAnotherServer checks that another server gives up the jobs of a server that ended without notice, but not the
// jobs of a living one.
func TestLeaseOfAnotherServer(t *testing.T) {
	t.Parallel()
	// The lost server's jobs end after the grace period. A busy machine delays the living one's heartbeats, too, by less than that.
	w := newWorld(t, func(d *jobs.Options) { d.Grace, d.Heartbeat = 5*time.Second, 20*time.Millisecond })
	daemon, lost := uuid.New(), uuid.New()
	w.Exec("INSERT INTO servers (id, beat_at) VALUES ($1, now() - interval '1 hour')", lost)
	w.Exec("INSERT INTO provisioner_daemons (id, organization_id, name, online, server_id, last_seen_at) VALUES ($1, $2, 'lost', true, $3, now() - interval '2 hours')", daemon, w.Org, lost)
	orphan := w.insert(map[string]string{"pool": "lost"})
	w.service.HearFor(time.Hour)
	w.Exec("UPDATE provisioner_jobs SET status = 'running', started_at = now(), worker_id = $2, epoch = 1 WHERE id = $1", orphan, daemon)

	living := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "living"})
	id := w.insert(nil)
	living.accept()
	other := jobs.New(w.opts)
	other.Handle(kind, recorder{w})
	if err := other.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer other.Stop()

	w.await(orphan, "failed")
	w.awaitOffline(daemon)
	testwait.Until(w.T, "both servers have looked at the leases several times",
		w.Counts(2, "SELECT count(*) FROM servers WHERE beat_at > started_at + interval '1 second'"))
	if row := w.row(id); row.Status != "running" {
		t.Errorf("the job at the other server is %s: %s", row.Status, row.Error)
	}
}

// TestSecondServer checks that a server that starts does not forget another server's daemons, however long they have been
// connected, and one that stops signs off.
func TestSecondServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	as := jobs.Daemon{ID: uuid.New(), Name: "raw"}
	r := w.raw(t, as)
	next[*provisionerpb.ServerMessage_Welcome](r)
	w.Exec("UPDATE provisioner_daemons SET last_seen_at = now() - interval '8 days'")
	stale := uuid.New()
	w.Exec("INSERT INTO provisioner_daemons (id, organization_id, name, last_seen_at) VALUES ($1, $2, 'stale', now() - interval '8 days')", stale, w.Org)
	other := jobs.New(w.opts)
	other.Handle(kind, recorder{w})
	if err := other.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !w.online(as.ID) {
		t.Error("the first server's daemon is offline or forgotten")
	}
	var n int
	if err := w.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM provisioner_daemons WHERE id = $1", stale).Scan(&n); err != nil || n != 0 {
		t.Errorf("a daemon that was not seen for eight days: %d rows, %v", n, err)
	}
	w.insert(nil)
	r.accept()
	other.Stop()
	if err := w.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM servers").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d servers after one stopped, %v; want 1", n, err)
	}
}

// TestBrokenDaemonStarvesNobody checks that a daemon that cannot be given a job does not keep the others from theirs, and
// one whose row is gone is asked to reconnect.
func TestBrokenDaemonStarvesNobody(t *testing.T) {
	t.Parallel()
	for name, heartbeat := range map[string]time.Duration{"before the heartbeat": time.Hour, "after the heartbeat": 20 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(d *jobs.Options) { d.Heartbeat = heartbeat })
			bad := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "a-bad"})
			next[*provisionerpb.ServerMessage_Welcome](bad)
			good := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "good"})
			next[*provisionerpb.ServerMessage_Welcome](good)
			w.Exec("DELETE FROM provisioner_daemons WHERE name = 'a-bad'") // its leases break a foreign key
			if heartbeat < time.Second {
				for range bad.messages { // until it is cut
				}
			} else {
				bad.send(slot(1))
			}
			w.insert(nil)
			good.accept()
		})
	}
}

// TestDispatchRace changes sessions, leases and offers while the dispatcher reads them, for the race detector.
func TestDispatchRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const daemons, each = 4, 8
	var ids []uuid.UUID
	for range daemons * each {
		ids = append(ids, w.insert(nil))
	}
	var working sync.WaitGroup
	for n := range daemons {
		r := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: fmt.Sprint("d", n)})
		working.Go(func() {
			for range each {
				offer := r.accept()
				r.seq = 0
				r.event(offer, &provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: succeeded("s")}})
			}
		})
	}
	working.Wait()
	for _, id := range ids {
		w.await(id, "succeeded")
	}
}
