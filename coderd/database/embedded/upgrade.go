//go:build unix

package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// An upgrade copies the databases from a folder of the old major version into a new folder, by PostgreSQL's own
// pg_dumpall, pg_dump and psql, while both versions run and the old one refuses writes. Then the new folder takes the
// name of the old one:
//
//	data.new       filled; a server that is killed here leaves data untouched, and the next start begins again
//	data.replaced  data, renamed; a start that finds no data renames it back
//	data           data.new, renamed; from here on the upgrade has happened
//	data.<major>   data.replaced, renamed; kept for keepReplaced
//
// An upgrade that fails leaves data as it was, and the server continues with the old version.

const (
	// keepReplaced is for how long the data folder of the old version remains after an upgrade. The first start after
	// it removes the folder.
	keepReplaced = 7 * 24 * time.Hour
	// emptySize is the size of a data folder without data of ours, with its log, in bytes.
	emptySize = 128 << 20
)

func (s *Server) freshDir() string    { return s.data + ".new" }
func (s *Server) replacedDir() string { return s.data + ".replaced" }

// resume finishes or undoes the renames of an upgrade that was interrupted.
func (s *Server) resume() error {
	if _, err := os.Lstat(s.replacedDir()); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return folderFault(err, s.data)
	}
	switch _, err := os.Lstat(s.data); {
	case err == nil:
		return s.shelve()
	case !errors.Is(err, fs.ErrNotExist):
		return folderFault(err, s.data)
	}
	if err := s.rename(s.replacedDir(), s.data); err != nil {
		return err
	}
	s.log.Info("interrupted upgrade of PostgreSQL undone", "path", s.data)
	return nil
}

// shelve gives the replaced data folder the name under which it is kept.
func (s *Server) shelve() error {
	major, err := madeBy(s.replacedDir())
	if err != nil {
		return err
	}
	now := time.Now()
	if err := os.Chtimes(s.replacedDir(), now, now); err != nil {
		return folderFault(err, s.data)
	}
	kept := s.data + "." + strconv.Itoa(major)
	if err := os.RemoveAll(kept); err != nil { // of an earlier upgrade from the same version
		return folderFault(err, kept)
	}
	return s.rename(s.replacedDir(), kept)
}

// rename renames a folder beside the data folder and waits until that is on disk.
func (s *Server) rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return folderFault(err, to)
	}
	parent, err := os.Open(filepath.Dir(s.data))
	if err != nil {
		return folderFault(err, to)
	}
	if err := errors.Join(parent.Sync(), parent.Close()); err != nil {
		return folderFault(err, to)
	}
	s.log.Debug("PostgreSQL data folder renamed", "path", to)
	return nil
}

// removeShelved removes the data folders of old versions that were kept long enough. The caller has seen that the new
// version works.
func (s *Server) removeShelved() {
	entries, err := os.ReadDir(filepath.Dir(s.data))
	if err != nil {
		s.log.Warn("cannot look for data folders of old versions of PostgreSQL", "err", err)
		return
	}
	for _, e := range entries {
		number, ours := strings.CutPrefix(e.Name(), filepath.Base(s.data)+".")
		if _, err := strconv.Atoi(number); !ours || err != nil {
			continue
		}
		path := filepath.Join(filepath.Dir(s.data), e.Name())
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) > keepReplaced {
			err = os.RemoveAll(path)
			s.log.Info("data folder of an old version of PostgreSQL removed", "path", path)
		}
		if err != nil {
			s.log.Warn("cannot remove the data folder of an old version of PostgreSQL", "path", path, "err", err)
		}
	}
}

// upgrade moves the data to another installation's major version, which the server then uses. The data folder is
// secure, and no PostgreSQL runs on it. An error means that nothing has changed, or that the next start undoes what
// has.
func (s *Server) upgrade(ctx context.Context, to Install) error {
	began := time.Now()
	s.log.Info("upgrading PostgreSQL", "version", to.Version, "path", s.data)
	tools, err := clientsOf(ctx, s.install, to)
	if err != nil {
		return err
	}
	if err := s.dropFresh(ctx); err != nil {
		return err
	}
	if err := s.fill(ctx, to, tools); err != nil {
		return errors.Join(err, s.dropFresh(context.WithoutCancel(ctx)))
	}
	s.log.Debug("PostgreSQL data copied", "path", s.freshDir())
	if err := s.rename(s.data, s.replacedDir()); err != nil {
		return err
	}
	if err := s.rename(s.freshDir(), s.data); err != nil {
		return errors.Join(err, s.rename(s.replacedDir(), s.data))
	}
	old := s.install
	s.install = to
	if err := s.shelve(); err != nil {
		s.log.Warn("cannot rename the data folder of the old version of PostgreSQL", "err", err) // the next start does
	}
	s.log.Info("PostgreSQL upgraded", "version", to.Version, "path", s.data+"."+strconv.Itoa(old.Major), "duration",
		time.Since(began))
	return nil
}

// dropFresh removes an unfinished data folder, and what still runs on it.
func (s *Server) dropFresh(ctx context.Context) error {
	if _, err := os.Lstat(s.freshDir()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := stopOrphan(ctx, s.freshDir(), s.log); err != nil {
		return err
	}
	if err := os.RemoveAll(s.freshDir()); err != nil {
		return folderFault(err, s.freshDir())
	}
	return nil
}

// fill creates the new data folder and copies everything into it. Afterwards neither version runs, and the folder is on
// disk.
func (s *Server) fill(ctx context.Context, to Install, tools clients) (err error) {
	from := &Server{log: s.log, install: s.install, data: s.data, password: s.password, finished: make(chan struct{})}
	into := &Server{log: s.log, install: to, data: s.freshDir(), password: s.password, finished: make(chan struct{})}
	for _, srv := range []*Server{from, into} {
		if srv.socket, err = socketFolder(srv.data); err != nil {
			return err
		}
		defer srv.release()
	}
	// A command beside the server could write what the copy misses.
	source, err := from.launch(ctx, "default_transaction_read_only=on")
	if err != nil {
		return err
	}
	defer source.end(s.log)
	names, size, err := from.databases(ctx)
	if err != nil {
		return err
	}
	if err := hasRoom(filepath.Dir(s.data), 2*size+emptySize, s.install, to); err != nil {
		return err
	}
	if err := to.InitDB(ctx, into.data, s.password, true); err != nil {
		return err
	}
	s.log.Debug("PostgreSQL data folder created", "path", into.data)
	target, err := into.launch(ctx)
	if err != nil {
		return err
	}
	if err = tools.copyAll(ctx, from, into, names); err == nil {
		err = into.analyze(ctx, names)
	}
	target.end(s.log)
	if err == nil && target.err != nil { // it has not written everything back
		err = fmt.Errorf("stop PostgreSQL %s: %w", to.Version, target.err)
	}
	if err != nil {
		return fault.New(fault.Unavailable, "The data in %s cannot be copied to PostgreSQL %d: %w", s.data, to.Major,
			err)
	}
	return nil
}

// databases returns the names of the databases that are copied, and the size of all, in bytes.
func (s *Server) databases(ctx context.Context) (names []string, size int64, err error) {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return nil, 0, fmt.Errorf("connect to PostgreSQL %s: %w", s.install.Version, err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if err := conn.QueryRow(ctx, "SELECT sum(pg_database_size(oid))::bigint FROM pg_database").Scan(&size); err != nil {
		return nil, 0, fmt.Errorf("measure the databases: %w", err)
	}
	rows, err := conn.Query(ctx,
		"SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY datname")
	if err != nil {
		return nil, 0, fmt.Errorf("list the databases: %w", err)
	}
	names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return names, size, err
}

// analyze collects the statistics that queries are planned with: a copy has none.
func (s *Server) analyze(ctx context.Context, names []string) error {
	for _, name := range names {
		config, err := pgx.ParseConfig(s.URL())
		if err != nil {
			return err
		}
		config.Database = name
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return fmt.Errorf("connect to the copy: %w", err)
		}
		_, err = conn.Exec(ctx, "ANALYZE")
		if err = errors.Join(err, conn.Close(ctx)); err != nil {
			return fmt.Errorf("analyze the copy: %w", err)
		}
	}
	return nil
}

func hasRoom(dir string, need int64, from, to Install) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return folderFault(err, dir)
	}
	if left := int64(disk.Bavail) * int64(disk.Bsize); left < need {
		return fault.New(fault.Unavailable, "The upgrade from PostgreSQL %d to %d needs %d MB, and the disk that holds %s has %d MB left.",
			from.Major, to.Major, need>>20, dir, left>>20)
	}
	return nil
}

// clients is a folder with PostgreSQL's programs that copy databases.
type clients string

// clientsOf returns the programs of one of two installations: those of the newer one know both versions best, but
// downloaded installations have none.
func clientsOf(ctx context.Context, old, to Install) (clients, error) {
	for _, in := range []Install{to, old} {
		complete := true
		for _, name := range []string{"pg_dump", "pg_dumpall", "psql"} {
			_, err := output(ctx, filepath.Join(in.BinDir, name), "--version")
			if late(err) {
				return "", err
			}
			complete = complete && err == nil
		}
		if complete {
			return clients(in.BinDir), nil
		}
	}
	return "", fault.New(fault.Unavailable, "The upgrade from PostgreSQL %d to %d needs pg_dump, pg_dumpall and psql, which are neither in %s nor in %s.",
		old.Major, to.Major, to.BinDir, old.BinDir)
}

// copyAll copies roles and databases. The target is new: it has the superuser and the database postgres.
func (c clients) copyAll(ctx context.Context, from, into *Server, names []string) error {
	var roles, problem bytes.Buffer
	dump := c.command("pg_dumpall", from, "--globals-only")
	dump.Stdout, dump.Stderr = &roles, &problem
	if err := runUntil(ctx, dump); err != nil {
		return fmt.Errorf("pg_dumpall: %w: %s", err, lastLines(strings.TrimSpace(problem.String()), 1))
	}
	// The superuser exists already.
	text := strings.Replace(roles.String(), "\nCREATE ROLE "+superuser+";\n", "\n", 1)
	load := c.command("psql", into, loading...)
	load.Stdin, load.Stderr = strings.NewReader(text), &problem
	if err := runUntil(ctx, load); err != nil {
		return fmt.Errorf("psql: %w: %s", err, lastLines(strings.TrimSpace(problem.String()), 1))
	}
	for _, name := range names {
		if err := c.copy(ctx, from, into, name); err != nil {
			return fmt.Errorf("copy database %s: %w", name, err)
		}
	}
	return nil
}

// loading are the arguments of a psql that stops at the first error.
var loading = []string{"--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--output=/dev/null"}

// copy copies a database.
func (c clients) copy(ctx context.Context, from, into *Server, name string) error {
	dumping, filling := []string{"--dbname=" + name}, loading
	if name == "postgres" {
		// In one transaction, PostgreSQL does not log what it loads. CREATE DATABASE allows none.
		filling = append(filling[:len(filling):len(filling)], "--single-transaction")
	} else {
		dumping = append(dumping, "--create")
	}
	dump, load := c.command("pg_dump", from, dumping...), c.command("psql", into, filling...)
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	var dumpProblem, loadProblem bytes.Buffer
	dump.Stdout, dump.Stderr = write, &dumpProblem
	load.Stdin, load.Stderr = read, &loadProblem
	dumped := make(chan error, 1)
	go func() {
		err := runUntil(ctx, dump)
		dumped <- errors.Join(err, write.Close())
	}()
	loadErr := runUntil(ctx, load)
	read.Close() // ends a pg_dump that still writes
	dumpErr := <-dumped
	if loadErr != nil {
		return fmt.Errorf("psql: %w: %s", loadErr, lastLines(strings.TrimSpace(loadProblem.String()), 1))
	}
	if dumpErr != nil {
		return fmt.Errorf("pg_dump: %w: %s", dumpErr, lastLines(strings.TrimSpace(dumpProblem.String()), 1))
	}
	return nil
}

// command returns a command that connects to a server. The password is in its environment.
func (c clients) command(program string, srv *Server, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(string(c), program), args...)
	cmd.Env = append(environ(), "PGHOST="+srv.socket, "PGPORT=5432", "PGUSER="+superuser, "PGDATABASE=postgres",
		"PGPASSWORD="+srv.password)
	cmd.Dir = "/"
	cmd.SysProcAttr = (*account)(nil).attributes()
	cmd.WaitDelay = killGrace
	return cmd
}
