package jobs_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// tagsOf parses "k=v k=v". "user=ann" means scope=user with ann as the owner.
func tagsOf(text string, people map[string]uuid.UUID) map[string]string {
	out := map[string]string{}
	for _, pair := range strings.Fields(text) {
		k, v, _ := strings.Cut(pair, "=")
		if k == "user" {
			out["scope"], out["owner"] = "user", people[v].String()
			continue
		}
		out[k] = v
	}
	return out
}

// truth lists which daemon may take which job.
var truth = []struct {
	job, daemon string
	takes       bool
}{
	{"", "", true},
	{"scope=organization", "", true},
	{"scope=organization owner=", "scope=organization", true},
	{"", "environment=on_prem", false},
	{"", "scope=organization environment=on_prem", false},
	{"", "user=ann", false},
	{"", "user=bob", false},
	{"environment=on_prem", "", false},
	{"environment=on_prem", "environment=on_prem", true},
	{"environment=on_prem", "environment=cloud", false},
	{"environment=on_prem", "environment=On_Prem", false},
	{"environment=on_prem", "environment=", false},
	{"environment=", "environment=", true},
	{"environment=on_prem", "environment=on_prem data_center=chicago", true},
	{"environment=on_prem data_center=chicago", "environment=on_prem", false},
	{"environment=on_prem data_center=chicago", "data_center=chicago environment=on_prem", true},
	{"environment=on_prem data_center=chicago", "environment=on_prem data_center=paris", false},
	{"environment=on_prem data_center=chicago", "environment=on_prem data_center=chicago gpu=yes", true},
	{"environment=on_prem", "user=ann environment=on_prem", false},
	{"user=ann", "", false},
	{"user=ann", "environment=on_prem", false},
	{"user=ann", "user=ann", true},
	{"user=ann", "user=bob", false},
	{"user=ann", "user=ann environment=on_prem", false},
	{"user=ann environment=on_prem", "user=ann", false},
	{"user=ann environment=on_prem", "user=ann environment=on_prem", true},
	{"user=ann environment=on_prem", "user=ann environment=on_prem gpu=yes", true},
	{"user=ann environment=on_prem", "user=bob environment=on_prem", false},
	{"user=ann environment=on_prem", "environment=on_prem", false},
	{"owner=ann", "", true},  // an owner means nothing without scope=user
	{"scope=team", "", true}, // there are two scopes
	{"a=1 b=2 c=3", "c=3 b=2 a=1", true},
}

// TestTruthTable checks that SQL, which leases jobs, and Go, which explains them, match tags alike: as the table says.
func TestTruthTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	people := map[string]uuid.UUID{"ann": w.user, "bob": uuid.New()}
	for i, c := range truth {
		t.Run(fmt.Sprintf("%d %q on %q", i, c.job, c.daemon), func(t *testing.T) {
			p := w.start(fmt.Sprint("daemon-", i), tagsOf(c.daemon, people), nil, nil)
			<-p.Started()
			id := w.insert(tagsOf(c.job, people))
			matched, err := w.service.Matched(t.Context(), w.DB.Queries, id)
			if err != nil {
				t.Fatal(err)
			}
			if got := matched[id].Available == 1; got != c.takes {
				t.Errorf("counted as matching: %t, want %t", got, c.takes)
			}
			if c.takes {
				w.await(id, "succeeded")
			} else {
				// The daemon would take the first job first: if it has run a later job that it may take, it has skipped this
				// one.
				tags := tagsOf(c.daemon, people)
				maps.DeleteFunc(tags, func(k, _ string) bool { return k == "owner" })
				if c.daemon != "user=bob" && !strings.Contains(c.daemon, "bob") {
					w.await(w.insert(tags), "succeeded")
				}
				if row := w.row(id); row.Status != "pending" {
					t.Errorf("the job is %s, want pending", row.Status)
				}
			}
			if err := w.service.Cancel(t.Context(), id, audit.Entry{Kind: audit.ProvisionerJob}); c.takes == (err == nil) {
				t.Errorf("cancel: %v", err)
			}
			p.kill()
			testwait.Until(w.T, "the daemon is offline", w.Counts(0, "SELECT count(*) FROM provisioner_daemons WHERE online"))
			if _, err := w.DB.Pool.Exec(t.Context(), "DELETE FROM provisioner_daemons"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestNobodySendsJobsToOthersProvisioners checks that a job that names another user as its owner goes to its initiator's
// provisioners.
func TestNobodySendsJobsToOthersProvisioners(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	victim := uuid.New()
	theirs := w.start("theirs", map[string]string{"scope": "user", "owner": victim.String()}, nil, nil)
	<-theirs.Started()
	id := w.insert(map[string]string{"scope": "user", "owner": victim.String()})
	w.start("mine", map[string]string{"scope": "user", "owner": w.user.String()}, nil, nil)
	w.await(id, "succeeded")
	if n := theirs.exec.runs(); n != 0 {
		t.Errorf("%d jobs ran at the victim's", n)
	}
}

func TestWaitingReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	reason := func(id uuid.UUID) string {
		shown, err := w.service.JSON(t.Context(), w.DB.Queries, id)
		if err != nil {
			t.Fatal(err)
		}
		return shown[id].WaitingReason
	}
	check := func(id uuid.UUID, want string) {
		t.Helper()
		if got := reason(id); got != want {
			t.Errorf("reason is %q, want %q", got, want)
		}
	}
	remedy := func(id uuid.UUID, want string) {
		t.Helper()
		shown, err := w.service.JSON(t.Context(), w.DB.Queries, id)
		if err != nil {
			t.Fatal(err)
		}
		if got := shown[id].WaitingRemedy; got != want {
			t.Errorf("remedy is %q, want %q", got, want)
		}
	}
	plain := w.insert(nil)
	check(plain, "No provisioner is online.")
	remedy(plain, "Start a provisioner without tags, or ask an admin to.")
	testwait.Until(w.T, "the log says why", func() error {
		var first string
		err := w.DB.Pool.QueryRow(t.Context(), "SELECT output FROM provisioner_job_logs WHERE job_id = $1 ORDER BY id LIMIT 1", plain).Scan(&first)
		return testwait.Unless(err == nil && first == "No provisioner is online.", "the log begins with %q (%v)", first, err)
	})

	rack := w.start("rack-2", map[string]string{"environment": "on_prem"}, nil, nil)
	<-rack.Started()
	check(plain, "Every online provisioner has tags and accepts only jobs with tags, and this job has none. Nearest: rack-2.")
	both := w.insert(map[string]string{"environment": "on_prem", "data_center": "chicago"})
	check(both, "No provisioner online has data_center=chicago. Nearest: rack-2 lacks data_center=chicago.")
	remedy(both, "Start a provisioner with data_center=chicago, environment=on_prem, or cancel the job and choose other tags.")
	own := w.insert(map[string]string{"scope": "user"})
	check(own, "No provisioner of this user (scope=user) is online.")
	remedy(own, "Start a provisioner of this user without tags, or ask an admin to.")

	gate := make(chan struct{})
	w.start("busy", nil, &executor{run: blockUntil(gate)}, nil)
	defer close(gate)
	w.await(plain, "running")
	second, third := w.insert(nil), w.insert(nil)
	check(second, "The matching provisioner is busy; position 1 in the queue.")
	remedy(second, "") // waiting is enough
	shown, err := w.service.JSON(t.Context(), w.DB.Queries, third, plain)
	if err != nil {
		t.Fatal(err)
	}
	if got := shown[third]; got.QueuePosition != 2 || got.QueueSize != 2 {
		t.Errorf("position %d of %d, want 2 of 2", got.QueuePosition, got.QueueSize)
	}
	if got := shown[plain]; got.WorkerName != "busy" || got.WaitingReason != "" {
		t.Errorf("worker %q, reason %q", got.WorkerName, got.WaitingReason)
	}
	matched, err := w.service.Matched(t.Context(), w.DB.Queries, both, third)
	if err != nil {
		t.Fatal(err)
	}
	if m := matched[both]; m.Count != 0 || m.MostRecentlySeen != nil {
		t.Errorf("matched for both tags: %+v", m)
	}
	if m := matched[third]; m.Count != 1 || m.Available != 1 || m.MostRecentlySeen == nil {
		t.Errorf("matched for no tags: %+v", m)
	}

}

// TestBusyAtAnotherServer: a job that waits for a daemon of another server says so, with its place, at every server.
func TestBusyAtAnotherServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *jobs.Options) { o.Heartbeat = time.Hour }) // none is late on a busy machine
	there := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "there"})
	w.insert(nil)
	other := jobs.New(w.opts)
	other.Handle(kind, recorder{w})
	if err := other.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer other.Stop()
	reason := func(s *jobs.Service, id uuid.UUID) string {
		t.Helper()
		shown, err := s.JSON(t.Context(), w.DB.Queries, id)
		if err != nil {
			t.Fatal(err)
		}
		return shown[id].WaitingReason
	}
	there.accept()
	second := w.insert(nil)
	const want = "The matching provisioner is busy; position 1 in the queue."
	for name, server := range map[string]*jobs.Service{"the daemon's": w.service, "another": other} {
		if got := reason(server, second); got != want {
			t.Errorf("%s server says %q, want %q", name, got, want)
		}
	}
}
