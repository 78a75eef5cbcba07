package pubsub_test

import (
	"log/slog"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
)

// TestMissed checks that a server whose connection was cut tells its subscribers to look again once it listens, because another server announced
// changes meanwhile, and that it hears what comes afterwards. Subscribers to channels that are new meanwhile hear too.
func TestMissed(t *testing.T) {
	t.Parallel()
	address := dbtest.URL(t)
	proxy := dbtest.NewProxy(t, address)
	open := func(url string) *pubsub.Postgres {
		db, err := database.Open(t.Context(), url, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		p := pubsub.NewPostgres(db, slog.New(slog.DiscardHandler))
		t.Cleanup(p.Close)
		return p
	}
	cut, other := open(proxy.URL), open(address)
	old := newInbox()
	defer cut.Subscribe("jobs", old.hear)()
	publish(t, other, "jobs", "before")
	old.until(t, "before")

	last := ""
	for name, worsen := range map[string]func(){"dropped": proxy.Drop, "cut": proxy.Cut} {
		worsen()
		publish(t, other, "jobs", "meanwhile")
		late := newInbox()
		cancel := cut.Subscribe("late", late.hear) // returns without a connection
		proxy.Release()
		// A dropped connection may be back before the announcement, which is then heard.
		got := old.next(t)
		for got == last && last != "" { // it was published twice
			got = old.next(t)
		}
		if got != "" && (name == "cut" || got != "meanwhile") {
			t.Fatalf("%s: heard %q, want to look again", name, got)
		}
		// A connection may be lost more than once: who is told to look again after a message may have missed it.
		publish(t, other, "late", "x")
		for got := late.next(t); got != "x"; got = late.next(t) {
			if got != "" {
				t.Fatalf("%s: heard %q", name, got)
			}
			publish(t, other, "late", "x")
		}
		cancel()
		after := "after it was " + name
		publish(t, other, "jobs", after)
		for got := old.next(t); got != after; got = old.next(t) {
			switch got {
			case "":
				publish(t, other, "jobs", after)
			case "meanwhile":
			default:
				t.Fatalf("%s: heard %q", name, got)
			}
		}
		last = after
	}
}
