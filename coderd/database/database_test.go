package database_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

func open(t *testing.T, url string) *database.DB {
	t.Helper()
	db, err := database.Open(t.Context(), url, quiet)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(db.Close)
	return db
}

// TestConcurrentOpen checks that replicas that start simultaneously on an empty database migrate it once.
func TestConcurrentOpen(t *testing.T) {
	t.Parallel()
	url := dbtest.EmptyURL(t)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			db, err := database.Open(t.Context(), url, quiet)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			defer db.Close()
			if _, err := db.GetDefaultOrganization(t.Context()); err != nil {
				t.Errorf("opened without its schema: %v", err)
			}
		})
	}
	wg.Wait()
	var applied int
	if err := open(t, url).Pool.QueryRow(t.Context(), "SELECT count(*) FROM goose_db_version WHERE version_id = 1").Scan(&applied); err != nil || applied != 1 {
		t.Errorf("the first migration was applied %d times, %v", applied, err)
	}
}

func TestNewerSchema(t *testing.T) {
	t.Parallel()
	_, err := database.Open(t.Context(), dbtest.NewerURL(t), quiet)
	if f := fault.As(err); f == nil || !strings.Contains(f.Message, "9999") || !strings.Contains(f.Message, "newer release") {
		t.Errorf("got %v", err)
	}
}

func TestCheckVersion(t *testing.T) {
	t.Parallel()
	for version, words := range map[int]string{130000: "", 180001: "", 120022: "PostgreSQL 12 is not supported", 90624: "PostgreSQL 9.6 is not supported"} {
		err := database.CheckVersion(version)
		if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("%d: got %v, want %q", version, err, words)
		}
	}
}

func TestOpenFaults(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		url  string
		code fault.Code
	}{
		"not a URL":   {"postgres://:@:bad:/", fault.Invalid},
		"no database": {strings.Replace(dbtest.URL(t), "/test_", "/nonsense_", 1), fault.Invalid},
		"nobody":      {"postgres://x:hunter2@127.0.0.1:1/x?connect_timeout=1", fault.Unavailable},
		"without TLS": {strings.Replace(dbtest.OldPostgres(t), "=disable", "=require", 1), fault.Invalid},
		"only TLS":    {dbtest.RefusingPostgres(t, "28000", "no pg_hba.conf entry, no encryption"), fault.Invalid},
		"no trust":    {dbtest.UntrustedPostgres(t), fault.Invalid},
		"starting":    {dbtest.RefusingPostgres(t, "57P03", "the database system is starting up"), fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			if row.code == fault.Unavailable { // Open waits for it: the others it refuses as soon as it knows
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
			}
			_, err := database.Open(ctx, row.url, quiet)
			if fault.CodeOf(err) != row.code {
				t.Errorf("got %v, want %q", err, row.code)
			}
			if text := err.Error(); strings.Contains(text, "hunter2") || strings.Contains(text, "\n") || strings.Count(text, "127.0.0.1:1: ") > 1 {
				t.Errorf("the fault tells the password, or more than once why: %v", err)
			}
		})
	}
}

// TestComesAndGoes checks that Open waits for a database that starts later, that calls fail with Unavailable while the
// database is down, and that they work again afterwards.
func TestComesAndGoes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func() *embedded.Server {
		srv, err := embedded.Start(t.Context(), embedded.Options{Dir: dir, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		return srv
	}
	stop := func(srv *embedded.Server) {
		if err := srv.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
	srv := start()
	url := srv.URL()
	stop(srv)

	type opened struct {
		db  *database.DB
		err error
	}
	waiting := make(chan opened, 1)
	warned := make(chan struct{})
	go func() {
		db, err := database.Open(t.Context(), url, slog.New(&signalHandler{Handler: slog.DiscardHandler, once: sync.OnceFunc(func() { close(warned) })}))
		waiting <- opened{db, err}
	}()
	<-warned
	srv = start()
	got := <-waiting
	if got.err != nil {
		stop(srv)
		t.Fatalf("open while it starts: %v", got.err)
	}
	db := got.db
	defer db.Close()
	if srv.URL() != url {
		t.Errorf("the URL changed from %s to %s", url, srv.URL())
	}
	if err := db.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	stop(srv)
	for range 20 { // more often than there are connections in the pool
		_, err := db.GetSetting(t.Context(), "deployment_id")
		if fault.CodeOf(err) != fault.Unavailable || !database.IsUnavailable(err) {
			t.Fatalf("while it is away: got %v", err)
		}
		err = db.InTx(t.Context(), func(q *dbsqlc.Queries) error { _, err := q.GetSetting(t.Context(), "x"); return err })
		if fault.CodeOf(err) != fault.Unavailable {
			t.Fatalf("transaction while it is away: got %v", err)
		}
	}
	srv = start()
	defer stop(srv)
	for range 20 {
		if _, err := db.GetSetting(t.Context(), "deployment_id"); err != nil {
			t.Fatalf("when it is back: %v", err)
		}
	}
}

// signalHandler calls once when it handles its first record.
type signalHandler struct {
	slog.Handler
	once func()
}

func (h *signalHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *signalHandler) Handle(context.Context, slog.Record) error {
	h.once()
	return nil
}

func TestInTx(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := t.Context()
	put := func(q *dbsqlc.Queries, key string) error {
		return q.InsertSettingOnce(ctx, dbsqlc.InsertSettingOnceParams{Key: key, Value: []byte("v")})
	}
	undo := errors.New("undo")
	if err := db.InTx(ctx, func(q *dbsqlc.Queries) error { return errors.Join(put(q, "undone"), undo) }); !errors.Is(err, undo) {
		t.Errorf("got %v, want the function's error", err)
	}
	if _, err := db.GetSetting(ctx, "undone"); !database.IsNotFound(err) {
		t.Errorf("rolled back: got %v", err)
	}
	if err := db.InTx(ctx, func(q *dbsqlc.Queries) error { return put(q, "done") }); err != nil {
		t.Error(err)
	}
	if _, err := db.GetSetting(ctx, "done"); err != nil {
		t.Errorf("committed: %v", err)
	}
}

// TestDeadlock checks that when two transactions lock two rows in opposite order, PostgreSQL aborts one, which is retried.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := t.Context()
	ids := [2]uuid.UUID{uuid.New(), uuid.New()}
	for i, id := range ids {
		name := []string{"ann", "bob"}[i]
		if _, err := db.InsertUser(ctx, dbsqlc.InsertUserParams{ID: id, Username: name, Email: name + "@example.com", LoginType: "none", Status: "active", Roles: []string{}}); err != nil {
			t.Fatal(err)
		}
	}
	var runs atomic.Int64
	var both sync.WaitGroup
	both.Add(2)
	errs := make(chan error, 2)
	for i := range 2 {
		go func() {
			met := sync.OnceFunc(func() { both.Done(); both.Wait() })
			errs <- db.InTx(ctx, func(q *dbsqlc.Queries) error {
				runs.Add(1)
				if err := q.TouchUser(ctx, ids[i]); err != nil {
					return err
				}
				met() // both hold their first row
				return q.TouchUser(ctx, ids[1-i])
			})
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Errorf("transaction: %v", err)
		}
	}
	if runs.Load() < 3 {
		t.Errorf("%d runs: there was no deadlock", runs.Load())
	}
}

func TestViolations(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := t.Context()
	user := dbsqlc.InsertUserParams{ID: uuid.New(), Username: "ann", Email: "ann@example.com", LoginType: "none", Status: "active", Roles: []string{}}
	if _, err := db.InsertUser(ctx, user); err != nil {
		t.Fatal(err)
	}
	user.ID, user.Username = uuid.New(), "ANN"
	_, err := db.InsertUser(ctx, user)
	if !database.IsUniqueViolation(err, "users_username") || !database.IsUniqueViolation(err, "") || database.IsUniqueViolation(err, "users_email") {
		t.Errorf("a taken name: %v", err)
	}
	user.Username = "no good"
	if _, err := db.InsertUser(ctx, user); err == nil || !strings.Contains(err.Error(), "check constraint") || database.IsUniqueViolation(err, "") {
		t.Errorf("a bad name: %v", err)
	}
	err = db.InsertGitSSHKeyOnce(ctx, dbsqlc.InsertGitSSHKeyOnceParams{UserID: uuid.New(), Sealed: []byte{}})
	if !database.IsForeignKeyViolation(err, "") {
		t.Errorf("a key of nobody: %v", err)
	}
	if database.IsUnavailable(err) {
		t.Error("a violation counts as an outage")
	}
}

// TestTimeout checks that PostgreSQL ends a query that takes too long, which is reported, and that a query that its caller
// canceled does not count as an outage.
func TestTimeout(t *testing.T) {
	t.Parallel()
	db := open(t, dbtest.URL(t))
	err := db.InTx(t.Context(), func(*dbsqlc.Queries) error {
		tx, err := db.Pool.Begin(t.Context()) // a raw session, for sleeping
		if err != nil {
			return err
		}
		defer tx.Rollback(context.Background())
		if _, err := tx.Exec(t.Context(), "SET LOCAL statement_timeout = '20ms'"); err != nil { // for what follows, not for connecting
			return err
		}
		_, err = tx.Exec(t.Context(), "SELECT pg_sleep(60)")
		return err
	})
	if fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := db.GetSetting(ctx, "x"); !errors.Is(err, context.Canceled) || fault.As(err) != nil {
		t.Errorf("given up: got %v", err)
	}
}

// TestMigrationsAreInOrder checks that migrations run in the order of their numbers. Two migrations with the same number, or a name that sorts
// differently, would cause some to be skipped.
func TestMigrationsAreInOrder(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(database.Migrations(), "*.sql")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	before := 0
	for _, name := range names { // sorted by name
		var number int
		if _, err := fmt.Sscanf(name, "%04d_", &number); err != nil || fmt.Sprintf("%04d_", number) != name[:5] {
			t.Errorf("%s does not begin with four digits and _", name)
		}
		if number <= before {
			t.Errorf("%s follows number %d", name, before)
		}
		before = number
	}
	db := dbtest.New(t)
	var applied int
	if err := db.Pool.QueryRow(t.Context(), "SELECT count(*) FROM goose_db_version WHERE version_id > 0 AND is_applied").Scan(&applied); err != nil || applied != len(names) {
		t.Errorf("%d migrations are applied to a new database, %v; want %d", applied, err, len(names))
	}
}

// TestCommitOutlivesItsRequest checks that a transaction whose commit has begun ends well although its context ends meanwhile.
func TestCommitOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	for _, statement := range []string{
		"CREATE FUNCTION await_test() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$",
		"CREATE CONSTRAINT TRIGGER await_test AFTER INSERT ON settings DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION await_test()",
	} {
		if _, err := db.Pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	if _, err := lock.Exec(t.Context(), "SELECT pg_advisory_lock(1)"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- db.InTx(ctx, func(q *dbsqlc.Queries) error {
			return q.InsertSettingOnce(ctx, dbsqlc.InsertSettingOnceParams{Key: "key", Value: []byte("v")})
		})
	}()
	for waiting := 0; waiting == 0; { // until the commit waits for the lock
		if err := lock.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if _, err := lock.Exec(t.Context(), "SELECT pg_advisory_unlock(1)"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("got %v, want a commit", err)
	}
	if err := db.InTx(ctx, func(*dbsqlc.Queries) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: got %v, want %v", err, context.Canceled)
	}
}
