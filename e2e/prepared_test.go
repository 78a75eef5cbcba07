package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
)

// emptyDatabase is a configuration folder that holds nothing but a database at the newest version of its schema. TestMain removes it.
var emptyDatabase struct {
	once sync.Once
	dir  string
	err  error
}

// makeEmptyDatabase makes emptyDatabase, once.
func makeEmptyDatabase() (dir string, err error) {
	e := &emptyDatabase
	e.once.Do(func() {
		if e.dir, e.err = os.MkdirTemp("", "e2e-database-"); e.err == nil {
			e.err = migrateIn(e.dir)
		}
	})
	return e.dir, e.err
}

// migrateIn makes a database in a configuration folder.
func migrateIn(dir string) (err error) {
	log := slog.New(slog.DiscardHandler)
	pg, err := embedded.Start(context.Background(), embedded.Options{Dir: dir, Logger: log})
	if err != nil {
		return err
	}
	db, err := database.Open(context.Background(), pg.URL(), log)
	if err == nil {
		db.Close()
	}
	if err := errors.Join(err, pg.Stop(context.Background())); err != nil {
		return err
	}
	return outliveProcesses(filepath.Join(dir, "postgres", "data"))
}

// outliveProcesses turns off fsync: PostgreSQL no longer waits at each commit for the disk. Tests kill processes, and
// what these have written outlives them; no test survives a crash of the machine. The program says nothing about fsync
// to PostgreSQL, so what the folder says counts.
func outliveProcesses(data string) error {
	conf, err := os.OpenFile(filepath.Join(data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = conf.WriteString("fsync = off\n")
	return errors.Join(err, conf.Close())
}

// giveDatabase copies emptyDatabase to a server that would make such a database at its first start: it takes a second of two processors. The
// kernel copies the files as they are; to search them for zeros would take twice its time.
func (s *server) giveDatabase() error {
	config := filepath.Join(s.dir, "config-admin")
	external := func(setting string) bool {
		return setting == "--postgres-url" || strings.HasPrefix(setting, "CODER_PG_CONNECTION_URL=") || strings.HasPrefix(setting, "CODER_CONFIG_DIR=")
	}
	_, err := os.Stat(filepath.Join(config, "postgres"))
	if err == nil || s.program != coder || s.account != nil || slices.ContainsFunc(slices.Concat(s.args, s.extra), external) {
		return nil
	}
	dir, err := makeEmptyDatabase()
	if err != nil {
		return fmt.Errorf("prepare a database: %w", err)
	}
	if err := os.MkdirAll(config, 0o700); err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-a", "--sparse=never", filepath.Join(dir, "postgres"), config).CombinedOutput(); err != nil {
		return fmt.Errorf("copy a database: %w: %s", err, out)
	}
	return nil
}
