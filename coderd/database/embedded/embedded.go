//go:build unix

// Package embedded runs PostgreSQL for a server without an external database. It finds the programs, creates a data
// folder, and supervises PostgreSQL as a child process that requires a password and listens only on a Unix socket in
// that folder. It does not know what is stored.
//
// Layout below Options.Dir:
//
//	postgres/password   password of PostgreSQL's superuser; only the server's account can read it
//	postgres/lock       held by the process that runs PostgreSQL here
//	postgres/data       PostgreSQL's own files, with its socket; never group or world readable
//	postgres/data.new   a data folder being created; removed at the next start
//	postgres/data.15    after an upgrade, the data folder of the old major version; removed by the first start a week later
//	pg/<version>        programs that Fetch downloaded
//
// If the programs of the data folder's major version and of a newer one are both installed, Start upgrades the data:
// the old programs will be gone one day, and then it would be too late.
//
// The socket's permissions alone are not enough: if the server is not root, the programs of templates run as the same
// account. They are kept from reading the password file.
//
// PostgreSQL refuses to run as root. If root starts it, it runs as the user postgres, or as a user id without a user,
// which then owns postgres/data. The folders above may be closed to that user: on Linux the data folder is passed as an
// open file instead of a path.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/disk"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	// socketPathMax is the longest path that fits into a socket's address on every system (103 bytes on macOS, 107 on
	// Linux).
	socketPathMax = 103
	socketName    = ".s.PGSQL.5432"
	superuser     = "coder"

	stopGrace = 30 * time.Second // for a shutdown that writes everything back
	killGrace = 5 * time.Second  // for a shutdown that relies on recovery
)

// Options configures where PostgreSQL works.
type Options struct {
	// Dir is the server's data folder. It is created if missing.
	Dir    string
	Logger *slog.Logger
	// BinDir holds PostgreSQL's programs. If empty, Find searches for them.
	BinDir string

	keepVersion bool // start without an upgrade
}

// Server is a running PostgreSQL. Its methods are safe for concurrent use.
type Server struct {
	log     *slog.Logger
	install Install
	data    string   // the data folder
	socket  string   // the folder that the URL names: data, or a short link to it
	lock    *os.File // held until the end; nil if another process runs PostgreSQL

	password string // of the superuser

	stop     context.CancelFunc
	finished chan struct{} // closed when nothing is running anymore
}

// Start finds PostgreSQL, creates the data folder if there is none, takes over from a server that was killed, and
// returns when the database accepts connections. It blocks until then: a second at first, a tenth of a second later,
// longer after a crash, and for as long as the data takes to copy when PostgreSQL is upgraded; ctx bounds it. Errors
// that an operator can act on are faults. The caller must call Stop in the end.
func Start(ctx context.Context, opts Options) (*Server, error) {
	dir, err := filepath.Abs(filepath.Join(opts.Dir, "postgres"))
	if err != nil {
		return nil, fmt.Errorf("find data folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, folderFault(err, dir)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, folderFault(err, dir)
	}
	lock, err := acquire(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	s := &Server{log: opts.Logger, data: filepath.Join(dir, "data"), lock: lock, finished: make(chan struct{})}
	if err := s.start(ctx, opts); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, opts Options) (err error) {
	if err := s.resume(); err != nil {
		return err
	}
	var newest Install
	if s.install, newest, err = find(ctx, opts.Dir, opts.BinDir); err != nil {
		return err
	}
	if err := stopOrphan(ctx, s.data, s.log); err != nil {
		return err
	}
	if err := s.install.account.takeOver(s.data); err != nil {
		return folderFault(err, s.data)
	}
	if err := s.ensureData(ctx); err != nil {
		return err
	}
	if err := s.secure(ctx); err != nil {
		return err
	}
	if newest.Major > s.install.Major && !opts.keepVersion {
		if err := s.upgrade(ctx, newest); err != nil {
			if ctx.Err() != nil {
				return err
			}
			s.log.Warn("cannot upgrade PostgreSQL, continuing with the old version", "version", s.install.Version,
				"err", err)
		}
	}
	if s.socket, err = socketFolder(s.data); err != nil {
		return err
	}
	began := time.Now()
	p, err := s.launchVerified(ctx)
	if err != nil {
		return err
	}
	s.removeShelved()
	s.log.Info("PostgreSQL is running", "version", s.install.Version, "path", s.data, "duration", time.Since(began))
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	go s.supervise(run, p)
	return nil
}

// URL returns the URL to connect to. It contains the password, so it must not appear in logs or arguments.
func (s *Server) URL() string { return urlOf(s.socket, s.password) }

func urlOf(socket, password string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(superuser, password), Path: "/postgres"}
	// Programs that read such URLs as PostgreSQL's library does take a plus sign for one, not for a blank.
	u.RawQuery = strings.ReplaceAll(url.Values{"host": {socket}, "port": {"5432"}}.Encode(), "+", "%20")
	return u.String()
}

// Stop shuts PostgreSQL down after it has written its data back, and returns when it has ended, usually within a tenth
// of a second. After half a minute PostgreSQL is stopped abruptly, which loses nothing but makes the next start
// recover. If ctx ends first, Stop returns its error and the shutdown continues. Stop may be called again.
func (s *Server) Stop(ctx context.Context) error {
	s.stop()
	select {
	case <-s.finished:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop PostgreSQL: %w", ctx.Err())
	}
}

// supervise owns PostgreSQL until ctx ends, and restarts it if it exits.
func (s *Server) supervise(ctx context.Context, p *process) {
	defer close(s.finished)
	defer s.release()
	retry := backoff.Backoff{Min: 200 * time.Millisecond, Max: 30 * time.Second}
	for {
		began := time.Now()
		select {
		case <-ctx.Done():
			p.end(s.log)
			return
		case <-p.done:
		}
		if time.Since(began) > time.Minute {
			retry.Reset()
		}
		s.log.Error("PostgreSQL ended unexpectedly", "err", p.err, "line", p.log.reason())
		for p = nil; p == nil; {
			if retry.Wait(ctx) != nil {
				return
			}
			err := removeStaleLocks(s.data)
			if err == nil {
				p, err = s.launch(ctx)
			}
			if err != nil {
				if ctx.Err() != nil {
					return
				}
				s.log.Error("cannot restart PostgreSQL", "err", err)
			}
		}
		s.log.Info("PostgreSQL restarted")
	}
}

// launchVerified is like launch, and sets the password if PostgreSQL has a different one.
func (s *Server) launchVerified(ctx context.Context) (*process, error) {
	p, err := s.launch(ctx)
	if err != nil {
		return nil, err
	}
	fits, err := s.verify(ctx)
	if err != nil {
		p.end(s.log)
		return nil, err
	}
	if fits {
		return p, nil
	}
	s.log.Warn("PostgreSQL's password differs from the file, setting it", "path", s.data)
	p.end(s.log)
	if err := s.install.setPassword(ctx, s.data, s.password); err != nil {
		return nil, err
	}
	return s.launch(ctx)
}

// launch starts PostgreSQL with additional settings and waits until it accepts connections.
func (s *Server) launch(ctx context.Context, more ...string) (*process, error) {
	retry := backoff.Backoff{Min: 50 * time.Millisecond, Max: time.Second}
	for try := 1; ; try++ {
		p, err := startProcess(s.install, s.data, s.log, more...)
		if err != nil {
			return nil, err
		}
		if err := p.awaitReady(ctx, s.data, s.log); err == nil {
			return p, nil
		} else if !p.log.has("shared memory block") || try == 8 || retry.Wait(ctx) != nil {
			p.end(s.log)
			return nil, err
		}
		// Children of a killed PostgreSQL end a moment after it; until then they hold the folder.
	}
}

func (s *Server) release() {
	if s.socket != "" && s.socket != s.data {
		if err := os.RemoveAll(filepath.Dir(s.socket)); err != nil {
			s.log.Warn("cannot remove link to PostgreSQL's socket", "err", err)
		}
	}
	if s.lock != nil {
		giveBack(s.lock)
	}
}

// ensureData creates the data folder if it is missing. The folder gets its name only when it is complete.
func (s *Server) ensureData(ctx context.Context) error {
	switch _, err := os.Lstat(filepath.Join(s.data, "PG_VERSION")); {
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return folderFault(err, s.data)
	}
	fresh := s.freshDir()
	if err := s.dropFresh(ctx); err != nil {
		return err
	}
	began := time.Now()
	// The password is stored first, so that a complete folder always has one.
	password, err := readPassword(filepath.Dir(s.data))
	if err == nil && password == "" {
		password, err = makePassword(filepath.Dir(s.data))
	}
	if err != nil {
		return err
	}
	if err := s.install.InitDB(ctx, fresh, password, true); err != nil {
		return err
	}
	if err := os.Rename(fresh, s.data); err != nil {
		return folderFault(err, s.data)
	}
	s.log.Info("PostgreSQL data folder created", "path", s.data, "version", s.install.Version, "duration",
		time.Since(began))
	return nil
}

// addressable reports whether a folder can be the host in a URL: it must be short enough for a socket's address, and a
// comma would separate hosts.
func addressable(folder string) bool {
	return len(folder)+1+len(socketName) <= socketPathMax && !strings.Contains(folder, ",")
}

// socketFolder returns a path of the data folder that is addressable.
func socketFolder(data string) (string, error) {
	if addressable(data) {
		return data, nil
	}
	dir, err := os.MkdirTemp("", "codermesh-")
	if err != nil {
		return "", fmt.Errorf("make a short name for PostgreSQL's socket: %w", err)
	}
	link := filepath.Join(dir, "pg")
	if err := os.Symlink(data, link); err != nil {
		return "", errors.Join(fmt.Errorf("make a short name for PostgreSQL's socket: %w", err), os.RemoveAll(dir))
	}
	return link, nil
}

func folderFault(err error, dir string) error {
	if full := disk.Fault(err, "The disk of the database", dir); full != nil {
		return full
	}
	return fault.New(fault.Unavailable, "The data folder %s cannot be used: %w", dir, err).
		WithDetail("Make it writable, or choose another with --global-config.")
}
