package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
	embeds "github.com/codermesh/codermesh/v2/coderd/slim"
)

// prepared holds what a server makes at its first start and each could copy: a configuration folder with an empty database of the newest schema, and
// a cache with the programs for workspaces, unpacked. TestMain removes it.
var prepared struct {
	once sync.Once
	dir  string
	err  error
}

// makePrepared makes the folder, once.
func makePrepared() (dir string, err error) {
	p := &prepared
	p.once.Do(func() {
		if p.dir, p.err = os.MkdirTemp("", "e2e-prepared-"); p.err == nil {
			p.err = errors.Join(migrateIn(p.dir), unpackIn(filepath.Join(p.dir, "bin")))
		}
	})
	return p.dir, p.err
}

// unpackIn unpacks the programs that the built server embeds, as it would.
func unpackIn(dir string) error {
	programs, err := embeds.New(dir, &url.URL{})
	if err != nil {
		return err
	}
	return programs.Prepare(context.Background())
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

// givePrepared gives a server at its first start what is prepared, unless the test gives it a database or an account: to make both takes more
// than a second of two processors. The kernel copies the database as it is; to search it for zeros would take twice its time. The
// programs are links, since a server only reads them.
func (s *server) givePrepared() error {
	config := filepath.Join(s.dir, "config-admin")
	external := func(setting string) bool {
		return setting == "--postgres-url" || strings.HasPrefix(setting, "CODER_PG_CONNECTION_URL=") || strings.HasPrefix(setting, "CODER_CONFIG_DIR=")
	}
	_, err := os.Stat(filepath.Join(config, "postgres"))
	if err == nil || s.program != coder || s.account != nil || slices.ContainsFunc(slices.Concat(s.args, s.extra), external) {
		return nil
	}
	dir, err := makePrepared()
	if err != nil {
		return fmt.Errorf("prepare a database and programs: %w", err)
	}
	cache := filepath.Join(s.dir, "cache")
	if err := errors.Join(os.MkdirAll(config, 0o700), os.MkdirAll(cache, 0o700)); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"-a", "--sparse=never", filepath.Join(dir, "postgres"), config},
		{"-al", filepath.Join(dir, "bin"), cache},
	} {
		if out, err := exec.Command("cp", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("cp %s: %w: %s", args, err, out)
		}
	}
	return nil
}
