//go:build unix

package dbtest

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
)

// Instance is a PostgreSQL of one test. It ends with the test.
type Instance struct {
	dir string
	cmd *exec.Cmd
}

// NewPair returns a primary and a standby that follows it. Their database postgres is empty.
func NewPair(t testing.TB) (primary, standby *Instance) {
	t.Helper()
	parent, err := os.MkdirTemp("", "pair-") // a short path, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(parent); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(parent, 0o755); err != nil { // PostgreSQL may run as another user
		t.Fatal(err)
	}
	install, err := embedded.Find(t.Context(), parent, "")
	if err != nil {
		t.Fatal(err)
	}
	primary, standby = &Instance{dir: filepath.Join(parent, "a")}, &Instance{dir: filepath.Join(parent, "b")}
	if err := install.InitDB(t.Context(), primary.dir, "", false); err != nil {
		t.Fatal(err)
	}
	// A copy of a cluster that never ran is a backup of it.
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", primary.dir, standby.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(standby.dir, "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	primary.start(t, install)
	standby.start(t, install, "primary_conninfo=host="+primary.dir+" port=5432 user=coder",
		"wal_retrieve_retry_interval=100ms")
	return primary, standby
}

// PairURL returns the URL with which a server follows the primary of several instances.
func PairURL(instances ...*Instance) string {
	var hosts, ports []string
	for _, in := range instances {
		hosts, ports = append(hosts, in.dir), append(ports, "5432")
	}
	u := url.URL{Scheme: "postgres", User: url.User("coder"), Path: "/postgres"}
	u.RawQuery = url.Values{"host": {strings.Join(hosts, ",")}, "port": {strings.Join(ports,
		",")}, "target_session_attrs": {"read-write"}}.Encode()
	return u.String()
}

func (in *Instance) start(t testing.TB, install embedded.Install, settings ...string) {
	t.Helper()
	settings = append(settings, "wal_level=replica", "max_wal_senders=10", "hot_standby=on",
		// A standby refuses less than the primary had when it made the copied checkpoint: these are initdb's.
		"max_worker_processes=8", "max_connections=100")
	settings = append(settings, embedded.Volatile...)
	// What is committed must be in the log that the standby has: pg_current_wal_lsn does not count what PostgreSQL has
	// yet to write.
	settings = append(settings, "synchronous_commit=on")
	cmd, closeAfter, err := install.Command(in.dir, settings...)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAfter()
	log, err := os.Create(in.dir + ".log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.cmd = cmd
	t.Cleanup(in.Stop)
	t.Cleanup(func() {
		if text, err := os.ReadFile(in.dir + ".log"); t.Failed() && err == nil {
			t.Logf("%s:\n%s", in.dir, text)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	for in.Try(ctx, "SELECT 1") != nil {
		if ctx.Err() != nil {
			t.Fatal("PostgreSQL does not answer")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Stop ends PostgreSQL without a shutdown, as a crash does. It is idempotent.
func (in *Instance) Stop() {
	if in.cmd == nil {
		return
	}
	if in.cmd.Process.Signal(syscall.SIGQUIT) == nil {
		_ = in.cmd.Wait() // it exits with an error, as it must
	}
	in.cmd = nil
}

// Promote makes a standby the primary. It returns when it is.
func (in *Instance) Promote(t testing.TB) {
	t.Helper()
	// A statement that waited for the promotion would delay it if what is left to replay conflicts with the statement's
	// snapshot.
	if err := in.Try(t.Context(), "SELECT 1 / pg_promote(false)::int"); err != nil {
		t.Fatalf("promote: %v", err)
	}
	for deadline := time.Now().Add(startLimit); ; time.Sleep(10 * time.Millisecond) {
		err := in.Try(t.Context(), "SELECT 1 / (NOT pg_is_in_recovery())::int")
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the standby is not promoted: %v", err)
		}
	}
}

// Try runs a statement on this instance.
func (in *Instance) Try(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, address(in.dir, "postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql)
	return err
}
