//go:build unix

package database_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// pooler starts a PgBouncer with its own settings in front of a new database, and returns its URL.
func pooler(t *testing.T, mode string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(dbtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "cmb") // t.TempDir is too long for unix sockets, and closed to other accounts
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	settings := fmt.Sprintf(`[databases]
coder = host=%s port=%d dbname=%s user=%s
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = %s
auth_type = any
pool_mode = %s
`, cfg.Host, cfg.Port, cfg.Database, cfg.User, dir, mode)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder // read once it has ended
	cmd := exec.Command("pgbouncer", file)
	cmd.Stdout, cmd.Stderr = &said, &said
	if os.Geteuid() == 0 { // which PgBouncer refuses
		var owner syscall.Stat_t
		if err := syscall.Stat(cfg.Host, &owner); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("PgBouncer's log:\n%s", said.String())
		}
	})
	testwait.Until(t, "PgBouncer answers", func() error {
		conn, err := net.Dial("unix", filepath.Join(dir, ".s.PGSQL.6432"))
		if err == nil {
			conn.Close()
		}
		return err
	})
	return "postgres://coder@/coder?" + url.Values{"host": {dir}, "port": {"6432"}}.Encode()
}

// TestPooler checks that a server works behind a PgBouncer that keeps sessions, without settings of its own, and refuses one that does not.
func TestPooler(t *testing.T) {
	t.Parallel()
	t.Run("session", func(t *testing.T) {
		t.Parallel()
		source := database.Source{URL: pooler(t, "session"), MaxOpen: 4}
		hold, err := source.Occupy(t.Context(), quiet, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer hold.Close()
		db := openSource(t, source)
		if err := db.InTx(t.Context(), func(q *dbsqlc.Queries) error {
			return q.InsertSettingOnce(t.Context(), dbsqlc.InsertSettingOnceParams{Key: "k", Value: []byte("v")})
		}); err != nil {
			t.Error(err)
		}
		var limit string
		if err := db.Pool.QueryRow(t.Context(), "SHOW statement_timeout").Scan(&limit); err != nil || limit != "30s" {
			t.Errorf("the limit of a statement is %q, %v", limit, err)
		}
	})
	for _, mode := range []string{"transaction", "statement"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			_, err := database.Source{URL: pooler(t, mode)}.Occupy(t.Context(), quiet, 0)
			if fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "does not keep sessions") {
				t.Errorf("got %v, want a fault that names the pooler", err)
			}
		})
	}
}
