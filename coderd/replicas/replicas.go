// Package replicas knows the server processes of the deployment: it announces this one, and reports which others run.
// The database is where they meet. Each server's heartbeat (coderd/jobs) keeps its row alive; a server without one for
// 15 seconds is gone.
//
// It must not know what servers tell each other.
package replicas

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
)

const (
	// lookEvery is how often the table is read although no change was announced: a killed server announces nothing.
	lookEvery = 5 * time.Second
	// maxSkew is how far this process's clock may be from the database's.
	maxSkew = time.Minute

	queryTimeout = 10 * time.Second
	channel      = "servers"
)

// Server is a process of the deployment.
type Server struct {
	ID uuid.UUID
	// URL is where the other servers reach it.
	URL     *url.URL
	Version string
	Started time.Time
	// Older is whether it was started before this process, as the database remembers.
	Older bool
}

// Options configures a Service. All fields but Changed are required.
type Options struct {
	DB     *database.DB
	PubSub pubsub.PubSub
	Logger *slog.Logger
	// Self is this process.
	Self Server
	// LinkVersion and MinLinkVersion are the newest and oldest version of the protocol between servers that this
	// process understands.
	LinkVersion, MinLinkVersion int
	// StateKeys are the ids of the keys that this process encrypts with (the first) and decrypts with.
	StateKeys []string
	// Heard returns on how many links another server was heard after a given time, and when any was heard last, also on
	// a link that has ended since: the zero time if none ever was. nil means that there are no links.
	Heard func(after time.Time) (links int, last time.Time)
	// Changed receives the other servers at the beginning and whenever they may have changed. One goroutine calls it.
	Changed func([]Server)
}

// Service is this server among the others. Call Check, Start and Stop once each, in this order.
type Service struct {
	opts   Options
	wake   notify.Wake
	cancel context.CancelFunc
	done   sync.WaitGroup
	alone  alone
}

// New returns a service that does nothing until Start.
func New(opts Options) *Service { return &Service{opts: opts, wake: notify.NewWake()} }

// Check refuses to run beside servers that this one would harm. Its faults say what to do.
func (s *Service) Check(ctx context.Context) error {
	if err := s.checkClock(ctx); err != nil {
		return err
	}
	rows, err := s.list(ctx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if err := s.compatible(row); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) checkClock(ctx context.Context) error {
	begin := time.Now()
	theirs, err := s.opts.DB.Clock(ctx)
	if err != nil {
		return fmt.Errorf("read the database's clock: %w", err)
	}
	end := time.Now()
	// The database read its clock between begin and end.
	skew := max(begin.Sub(theirs), theirs.Sub(end))
	if skew <= maxSkew {
		return nil
	}
	return fault.New(fault.Invalid, "This machine's clock and the database's differ by %s", skew.Round(time.Second)).
		WithDetail("Sessions and tokens would end too early or too late. Synchronize both clocks, for example with chrony, and start the server again.")
}

// compatible returns a fault if this process and another server cannot run side by side.
func (s *Service) compatible(row dbsqlc.ListServersRow) error {
	if len(row.StateKeys) > 0 &&
		(!slices.Contains(s.opts.StateKeys, row.StateKeys[0]) || !slices.Contains(row.StateKeys, s.opts.StateKeys[0])) {
		return fault.New(fault.Invalid, "The server at %s uses another state-encryption key (%s, this one uses %s)", row.Url, row.StateKeys[0], s.opts.StateKeys[0]).
			WithDetail("All servers need the same keys: copy that server's file to --state-encryption-key-file, and start this one again. Add a new key after the old one on all servers before it becomes the first.")
	}
	if int(row.LinkVersion) < s.opts.MinLinkVersion || s.opts.LinkVersion < int(row.MinLinkVersion) {
		return fault.New(fault.Invalid, "The server at %s runs version %s, which does not understand this one", row.Url, row.Version).
			WithDetail("Upgrade through a release that understands both, or stop all servers first.")
	}
	return nil
}

func (s *Service) list(ctx context.Context) ([]dbsqlc.ListServersRow, error) {
	rows, err := s.opts.DB.ListServers(ctx, database.ServerLifetime.Seconds())
	if err != nil {
		return nil, fmt.Errorf("list servers: %w", err)
	}
	return rows, nil
}

// Start announces this server and reports the others until Stop. Call it when the server answers at its URL.
func (s *Service) Start(ctx context.Context) error {
	if err := s.announce(ctx); err != nil {
		return err
	}
	s.alone.began = time.Now()
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	end := s.opts.PubSub.Subscribe(channel, func(string) { s.wake.Poke() })
	s.done.Go(func() {
		defer end()
		s.watch(ctx)
	})
	return nil
}

func (s *Service) announce(ctx context.Context) error {
	err := s.opts.DB.AnnounceServer(ctx, dbsqlc.AnnounceServerParams{
		ID: s.opts.Self.ID, Url: s.opts.Self.URL.String(), Version: s.opts.Self.Version,
		LinkVersion: int32(s.opts.LinkVersion), MinLinkVersion: int32(s.opts.MinLinkVersion),
		StateKeys: s.opts.StateKeys,
		Schema:    database.ProgramSchema(),
	})
	if err != nil {
		return fmt.Errorf("announce this server: %w", err)
	}
	return nil
}

// watch looks at the table until ctx ends.
func (s *Service) watch(ctx context.Context) {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	failing := false
	for {
		err := s.look(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			s.opts.Logger.Warn("cannot look for other servers, trying again", "err", err)
		}
		failing = err != nil
		timer.Reset(s.untilLook(time.Now()))
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}

// look reports the other servers. While the database does not answer, those that are known stay.
func (s *Service) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, err := s.list(ctx)
	if err != nil {
		return err
	}
	announced := false // rows are sorted by age, so those before this process's are older
	others := []Server{}
	errs := []error{s.noteLinks(ctx, rows)}
	for _, row := range rows {
		if row.ID == s.opts.Self.ID {
			announced = true
			continue
		}
		u, err := url.Parse(row.Url)
		if err != nil {
			errs = append(errs, fmt.Errorf("server %s: %w", row.ID, err))
			continue
		}
		if err := s.compatible(row); err != nil { // it should not have started
			errs = append(errs, err)
			continue
		}
		others = append(others, Server{
			ID: row.ID, URL: u, Version: row.Version, Started: row.StartedAt, Older: !announced,
		})
	}
	s.opts.Changed(others)
	if !announced { // this server was silent for so long that others removed it
		errs = append(errs, s.announce(ctx))
	}
	return errors.Join(errs...)
}

// Stop ends the reports. The server's row goes with its last heartbeat. Stop may be called without Start, and again.
func (s *Service) Stop() {
	if s.cancel != nil {
		s.cancel()
	}
	s.done.Wait()
}
