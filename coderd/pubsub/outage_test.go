package pubsub_test

import (
	"log/slog"
	"testing"

	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbtest"
	"github.com/codermesh/codermesh/coderd/pubsub"
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

	for name, worsen := range map[string]func(){"dropped": proxy.Drop, "cut": proxy.Cut} {
		worsen()
		publish(t, other, "jobs", "meanwhile")
		late := newInbox()
		cancel := cut.Subscribe("late", late.hear) // returns without a connection
		proxy.Release()
		// A dropped connection may be back before the announcement, which is then heard.
		if got := old.next(t); got != "" && (name == "cut" || got != "meanwhile") {
			t.Fatalf("%s: heard %q, want to look again", name, got)
		}
		publish(t, other, "late", "x")
		late.until(t, "x")
		cancel()
		publish(t, other, "jobs", "after")
		for got := old.next(t); got != "after"; got = old.next(t) {
			if got != "" && got != "meanwhile" {
				t.Fatalf("%s: heard %q", name, got)
			}
		}
	}
}
