package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds waits that a passing test never uses up.
const patience = testwait.Patience

// inbox is a subscriber that keeps the payloads that it receives.
type inbox chan string

func newInbox() inbox { return make(inbox, 1000) }

func (in inbox) hear(payload string) { in <- payload }

func (in inbox) next(t *testing.T) string {
	t.Helper()
	select {
	case payload := <-in:
		return payload
	case <-time.After(patience):
		t.Fatalf("no message within %s", patience)
		return ""
	}
}

// until reads up to the wanted payload: earlier ones may be "look again".
func (in inbox) until(t *testing.T, want string) {
	t.Helper()
	for got := in.next(t); got != want; got = in.next(t) {
		if got != "" {
			t.Fatalf("message: got %q, want %q or to look again", got, want)
		}
	}
}

func newPostgres(t *testing.T) (*pubsub.Postgres, *database.DB) {
	db := dbtest.New(t)
	p := pubsub.NewPostgres(db, slog.New(slog.DiscardHandler))
	t.Cleanup(p.Close)
	return p, db
}

// TestOrder checks that messages arrive in order, at every subscriber of their channel.
func TestOrder(t *testing.T) {
	t.Parallel()
	p, _ := newPostgres(t)
	one, two, other := newInbox(), newInbox(), newInbox()
	defer p.Subscribe("workspace:1", one.hear)()
	defer p.Subscribe("workspace:1", two.hear)()
	defer p.Subscribe("workspace:2", other.hear)()
	publish(t, p, "workspace:2", "x")
	for i := range 20 {
		publish(t, p, "workspace:1", fmt.Sprint(i))
	}
	for _, in := range []inbox{one, two} {
		in.until(t, "0")
		for i := 1; i < 20; i++ {
			if got := in.next(t); got != fmt.Sprint(i) {
				t.Fatalf("message %d: got %q", i, got)
			}
		}
	}
	other.until(t, "x")
	if len(other) > 0 {
		t.Errorf("heard %q from another channel", <-other)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	p, _ := newPostgres(t)
	canceled, stays := newInbox(), newInbox()
	var cancel func()
	cancel = p.Subscribe("c", func(payload string) {
		canceled <- payload
		if payload == "last" {
			cancel() // from within
		}
	})
	defer p.Subscribe("c", stays.hear)()
	publish(t, p, "c", "last")
	canceled.until(t, "last")
	publish(t, p, "c", "after")
	stays.until(t, "last")
	stays.until(t, "after")
	cancel() // again
	if len(canceled) > 0 {
		t.Errorf("heard %q after cancel", <-canceled)
	}
}

func TestSlow(t *testing.T) {
	t.Parallel()
	p, _ := newPostgres(t)
	begun, release := make(chan struct{}, 1), make(chan struct{})
	quick, slow := newInbox(), newInbox()
	defer p.Subscribe("s", func(payload string) {
		select {
		case begun <- struct{}{}:
		default:
		}
		<-release
		slow <- payload
	})()
	defer p.Subscribe("s", quick.hear)()
	publish(t, p, "s", "first")
	quick.until(t, "first")
	<-begun // it has a message in hand: the end of its queue arrives as another one
	const sent = 300
	for i := range sent {
		publish(t, p, "s", fmt.Sprint(i))
		quick.until(t, fmt.Sprint(i)) // the slow subscriber delays no other
	}
	close(release)
	heard := 0
	for got := slow.next(t); ; got = slow.next(t) {
		if heard++; got == "" && heard > 1 || heard > sent {
			break
		}
	}
	if heard > sent/2 {
		t.Errorf("a slow subscriber heard %d of %d messages: its queue has no bound", heard, sent)
	}
}

func publish(t *testing.T, p pubsub.PubSub, channel, payload string) {
	t.Helper()
	if err := p.Publish(t.Context(), channel, payload); err != nil {
		t.Fatalf("publish: %v", err)
	}
}

// TestTransaction checks that a change is announced when it is committed, to other replicas too, and not when it is rolled
// back.
func TestTransaction(t *testing.T) {
	t.Parallel()
	p, db := newPostgres(t)
	replica := pubsub.NewPostgres(db, slog.New(slog.DiscardHandler))
	t.Cleanup(replica.Close)
	here, there := newInbox(), newInbox()
	defer p.Subscribe("jobs", here.hear)()
	defer replica.Subscribe("jobs", there.hear)()

	undone := fmt.Errorf("undone")
	for _, end := range []struct {
		payload string
		err     error
	}{{"rolled back", undone}, {"committed", nil}} {
		err := db.InTx(t.Context(), func(q *dbsqlc.Queries) error {
			if err := q.Notify(t.Context(), dbsqlc.NotifyParams{Channel: "jobs", Payload: end.payload}); err != nil {
				return err
			}
			return end.err
		})
		if !errors.Is(err, end.err) {
			t.Fatalf("transaction: %v", err)
		}
	}
	here.until(t, "committed")
	there.until(t, "committed")
}

// TestManyChannels checks that subscribing and unsubscribing while messages flow loses none.
func TestManyChannels(t *testing.T) {
	t.Parallel()
	p, _ := newPostgres(t)
	for i := range 50 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			channel := fmt.Sprintf(`job:"%d'`, i%7)
			for round := range 10 {
				in := newInbox()
				cancel := p.Subscribe(channel, in.hear)
				want := fmt.Sprintf("%d-%d", i, round)
				publish(t, p, channel, want)
				for in.next(t) != want {
					continue
				}
				cancel()
			}
		})
	}
}

// TestReconnect kills PostgreSQL and starts it again: subscribers look again and receive messages as before.
func TestReconnect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv, err := embedded.Start(t.Context(), embedded.Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	db, err := database.Open(t.Context(), srv.URL(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	p := pubsub.NewPostgres(db, slog.New(slog.DiscardHandler))
	t.Cleanup(p.Close)

	in := newInbox()
	defer p.Subscribe("jobs", in.hear)()
	publish(t, p, "jobs", "before")
	in.until(t, "before")

	for round := range 2 {
		kill(t, dir)
		if got := in.next(t); got != "" {
			t.Fatalf("round %d after the kill: got %q, want to look again", round, got)
		}
		late := newInbox()
		cancel := p.Subscribe("late", late.hear)
		testwait.Until(t, "the database takes messages", func() error { return p.Publish(t.Context(), "late", "x") })
		late.until(t, "x")
		cancel()
		publish(t, p, "jobs", fmt.Sprint(round))
		in.until(t, fmt.Sprint(round))
	}
}

func kill(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(strings.Split(string(text), "\n")[0], &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// TestClosed checks that a subscription after Close neither blocks nor receives messages.
func TestClosed(t *testing.T) {
	t.Parallel()
	p, _ := newPostgres(t)
	in := newInbox()
	p.Subscribe("a", in.hear)
	p.Close()
	p.Close()
	p.Subscribe("b", in.hear)() // returns
	if diff := cmp.Diff(0, len(in)); diff != "" && <-in != "" {
		t.Errorf("heard something: %s", diff)
	}
}
