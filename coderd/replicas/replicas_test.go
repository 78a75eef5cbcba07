package replicas_test

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
	"github.com/codermesh/codermesh/v2/coderd/replicas"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = testwait.Patience

// server is a service whose reports are received from changed.
type server struct {
	*replicas.Service
	id      uuid.UUID
	changed chan []replicas.Server
}

func newServer(t *testing.T, db *database.DB, edit func(*replicas.Options)) *server {
	t.Helper()
	s := &server{id: uuid.New(), changed: make(chan []replicas.Server, 100)}
	ps := pubsub.NewPostgres(db, slog.New(slog.DiscardHandler))
	t.Cleanup(ps.Close)
	opts := replicas.Options{
		DB: db, PubSub: ps, Logger: slog.New(slog.DiscardHandler), LinkVersion: 2, MinLinkVersion: 1, StateKeys: []string{"one", "old"},
		Self:    replicas.Server{ID: s.id, URL: &url.URL{Scheme: "http", Host: "192.0.2.1:3000"}, Version: "v1"},
		Changed: func(list []replicas.Server) { s.changed <- list },
	}
	if edit != nil {
		edit(&opts)
	}
	s.Service = replicas.New(opts)
	t.Cleanup(s.Stop)
	return s
}

// sees waits for a report of exactly these servers.
func (s *server) sees(t *testing.T, want ...*server) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case list := <-s.changed:
			same := len(list) == len(want)
			for i := range list {
				same = same && list[i].ID == want[i].id && list[i].URL.Host == "192.0.2.1:3000"
			}
			if same {
				return
			}
		case <-limit:
			t.Fatalf("no report of %d other servers", len(want))
		}
	}
}

// announced waits until the table has this server's row.
func (s *server) announced(t *testing.T, db *database.DB) {
	t.Helper()
	testwait.Until(t, "the server announces itself", func() error {
		var url string
		return db.Pool.QueryRow(t.Context(), "SELECT url FROM servers WHERE id = $1 AND url <> ''", s.id).Scan(&url)
	})
}

func TestServersFindEachOther(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	a, b := newServer(t, db, nil), newServer(t, db, nil)
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.sees(t)
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.sees(t, b)
	b.sees(t, a)
	if _, err := db.Pool.Exec(t.Context(), "DELETE FROM servers WHERE id = $1", b.id); err != nil { // as b's last heartbeat does
		t.Fatal(err)
	}
	// b still runs: it was only silent for too long. Whether a notices that b was away depends on which of them looks first.
	b.announced(t, db)
	a.sees(t, b)
	b.Stop()
	if _, err := db.Pool.Exec(t.Context(), "UPDATE servers SET beat_at = now() - interval '1 minute' WHERE id = $1", b.id); err != nil { // killed
		t.Fatal(err)
	}
	a.sees(t)
	c := newServer(t, db, nil)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.sees(t, a)
	a.sees(t, c)
}

// TestOlder checks that two servers agree which of them started first.
func TestOlder(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	first, second := newServer(t, db, nil), newServer(t, db, nil)
	for _, s := range []*server{first, second} {
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for s, want := range map[*server]bool{first: false, second: true} {
		var other []replicas.Server
		for len(other) == 0 {
			select {
			case other = <-s.changed:
			case <-time.After(patience):
				t.Fatal("no report of the other server")
			}
		}
		if other[0].Older != want {
			t.Errorf("the other server is older: %t, want %t", other[0].Older, want)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	running := newServer(t, db, nil)
	if err := running.Check(t.Context()); err != nil {
		t.Fatalf("the first server: %v", err)
	}
	if err := running.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		edit func(*replicas.Options)
		want string // "": it starts
		todo string
	}{
		"the same":                      {edit: func(*replicas.Options) {}},
		"while keys are rotated":        {edit: func(o *replicas.Options) { o.StateKeys = []string{"old", "one"} }},
		"without the other's first key": {func(o *replicas.Options) { o.StateKeys = []string{"old"} }, "state-encryption key", "copy that server's file to --state-encryption-key-file"},
		"a first key of its own":        {func(o *replicas.Options) { o.StateKeys = []string{"new", "one"} }, "state-encryption key", "copy that server's file to --state-encryption-key-file"},
		"a newer version":               {edit: func(o *replicas.Options) { o.LinkVersion, o.MinLinkVersion = 3, 2 }},
		"a version that is too new":     {func(o *replicas.Options) { o.LinkVersion, o.MinLinkVersion = 4, 3 }, "version v1", "Upgrade through a release that understands both"},
		"a version that is too old":     {func(o *replicas.Options) { o.LinkVersion, o.MinLinkVersion = 0, 0 }, "version v1", "Upgrade through a release that understands both"},
	} {
		err := newServer(t, db, test.edit).Check(t.Context())
		if test.want == "" && err != nil ||
			test.want != "" && (fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), test.want) || !strings.Contains(fault.As(err).Detail, test.todo)) {
			t.Errorf("%s: %v, want %q, and what to do: %q", name, err, test.want, test.todo)
		}
	}
}

// TestClocks checks that a server refuses to start beside a database whose clock differs.
func TestClocks(t *testing.T) {
	t.Parallel()
	skewed := func(interval string) error {
		t.Helper()
		db, err := database.Open(t.Context(), dbtest.SkewedURL(t, interval), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		return newServer(t, db, nil).Check(t.Context())
	}
	for _, interval := range []string{"90 seconds", "-90 seconds"} {
		if err := skewed(interval); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "clock") || !strings.Contains(fault.As(err).Detail, "Synchronize both clocks") {
			t.Errorf("%s: %v", interval, err)
		}
	}
	for _, interval := range []string{"5 seconds", "50 seconds", "-50 seconds"} {
		if err := skewed(interval); err != nil {
			t.Errorf("%s: %v", interval, err)
		}
	}
}
