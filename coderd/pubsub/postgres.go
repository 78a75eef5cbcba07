package pubsub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/internal/backoff"
)

const (
	// silence is how long nothing may be heard before the connection is tested: a dead one does not say so.
	silence = 30 * time.Second
	// answerLimit bounds every statement on the listening connection.
	answerLimit = 10 * time.Second
)

// Postgres is a PubSub over LISTEN and NOTIFY on one connection of its own. It reconnects when that is lost.
type Postgres struct {
	db    *database.DB
	log   *slog.Logger
	table table

	stop     context.CancelFunc
	finished chan struct{} // closed when the listener has ended

	mu        sync.Mutex
	wanted    map[string][]chan struct{} // guarded by mu: channels to reconcile with, and who waits for that
	interrupt context.CancelFunc         // guarded by mu: ends the present wait for a message, nil when there is none
	connected bool                       // guarded by mu
}

// NewPostgres starts to listen, and returns when it does or when the first try failed. Close it before the database.
func NewPostgres(db *database.DB, logger *slog.Logger) *Postgres {
	ctx, stop := context.WithCancel(context.Background())
	p := &Postgres{db: db, log: logger, stop: stop, finished: make(chan struct{}), wanted: map[string][]chan struct{}{}}
	tried := make(chan struct{})
	go p.run(ctx, sync.OnceFunc(func() { close(tried) }))
	<-tried
	return p
}

// Close ends all subscriptions and waits for calls that have begun. It may be called again, not by a subscriber.
func (p *Postgres) Close() {
	p.stop()
	<-p.finished
	p.table.close()
}

// Publish implements PubSub. It fails when the database is away.
func (p *Postgres) Publish(ctx context.Context, channel, payload string) error {
	if err := p.db.Notify(ctx, dbsqlc.NotifyParams{Channel: channel, Payload: payload}); err != nil {
		return fmt.Errorf("publish on %s: %w", channel, err)
	}
	return nil
}

// Subscribe implements PubSub. It returns when PostgreSQL has been told, within a round trip; without a connection at once, and
// fn is called with "" when there is one.
func (p *Postgres) Subscribe(channel string, fn func(string)) func() {
	s := newSubscriber(fn)
	p.table.add(channel, s)
	p.reconcile(channel)
	return func() {
		if p.table.remove(channel, s) {
			p.announce(channel, nil)
		}
	}
}

// reconcile has the listener listen on a channel, and waits for it. Also when another subscriber listens on it already: PostgreSQL may
// not have been told yet.
func (p *Postgres) reconcile(channel string) {
	done := make(chan struct{})
	if p.announce(channel, done) {
		select {
		case <-done:
		case <-p.finished:
		}
	}
}

// announce asks the listener to look at a channel, and to close done afterwards. It reports whether there is a connection; if
// not, the listener looks at all channels when there is one, and done is not closed.
func (p *Postgres) announce(channel string, done chan struct{}) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.connected {
		return false
	}
	p.wanted[channel] = append(p.wanted[channel], done)
	if p.interrupt != nil {
		p.interrupt()
	}
	return true
}

// run listens until ctx ends. It calls tried after each try to connect.
func (p *Postgres) run(ctx context.Context, tried func()) {
	defer close(p.finished)
	retry := backoff.Backoff{Min: 50 * time.Millisecond, Max: 5 * time.Second}
	for {
		err := p.session(ctx, func() { retry.Reset(); tried() })
		tried()
		if ctx.Err() != nil {
			return
		}
		p.log.Warn("lost listening connection", "err", err)
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

// session connects, listens on all channels, and passes messages on until the connection is lost.
func (p *Postgres) session(ctx context.Context, healthy func()) error {
	dialCtx, cancel := context.WithTimeout(ctx, answerLimit)
	conn, err := p.db.Dial(dialCtx)
	cancel()
	if err != nil {
		return err
	}
	defer p.disconnect(ctx, conn)

	// From here on new channels are announced to us; those before are listened to at once.
	p.mu.Lock()
	p.connected = true
	p.mu.Unlock()
	if err := p.listen(ctx, conn, p.table.names()); err != nil {
		return err
	}
	healthy()
	p.table.lookAgain()
	for {
		if err := p.serveWanted(ctx, conn); err != nil {
			return err
		}
		if err := p.await(ctx, conn); err != nil {
			return err
		}
	}
}

func (p *Postgres) disconnect(ctx context.Context, conn *pgx.Conn) {
	p.mu.Lock()
	p.connected = false
	waiting := p.wanted
	p.wanted = map[string][]chan struct{}{}
	p.mu.Unlock()
	for _, list := range waiting {
		release(list)
	}
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := conn.Close(closeCtx); err != nil {
		p.log.Debug("cannot close listening connection", "err", err)
	}
}

// await passes one message on. It returns nil too when a channel is to be reconciled, or after a silence that the connection
// survived.
func (p *Postgres) await(ctx context.Context, conn *pgx.Conn) error {
	waitCtx, interrupt := context.WithTimeout(ctx, silence)
	defer interrupt()
	p.mu.Lock()
	if len(p.wanted) > 0 {
		p.mu.Unlock()
		return nil
	}
	p.interrupt = interrupt
	p.mu.Unlock()
	message, err := conn.WaitForNotification(waitCtx)
	p.mu.Lock()
	p.interrupt = nil
	p.mu.Unlock()
	switch {
	case err == nil:
		p.table.deliver(message.Channel, message.Payload)
		return nil
	case ctx.Err() != nil || conn.IsClosed():
		return err
	case errors.Is(waitCtx.Err(), context.DeadlineExceeded):
		return p.exec(ctx, conn, "SELECT 1")
	case waitCtx.Err() != nil: // interrupted; the connection stays good
		return nil
	default:
		return err
	}
}

// serveWanted brings the connection's channels in line with the subscribers'.
func (p *Postgres) serveWanted(ctx context.Context, conn *pgx.Conn) error {
	p.mu.Lock()
	wanted := p.wanted
	p.wanted = map[string][]chan struct{}{}
	p.mu.Unlock()
	if len(wanted) == 0 {
		return nil
	}
	defer func() {
		for _, list := range wanted {
			release(list)
		}
	}()
	names := p.table.names()
	var statements []string
	for channel := range wanted {
		verb := "UNLISTEN "
		if slices.Contains(names, channel) {
			verb = "LISTEN "
		}
		statements = append(statements, verb+pgx.Identifier{channel}.Sanitize())
	}
	return p.exec(ctx, conn, strings.Join(statements, ";"))
}

func (p *Postgres) listen(ctx context.Context, conn *pgx.Conn, channels []string) error {
	if len(channels) == 0 {
		return nil
	}
	statements := make([]string, len(channels))
	for i, channel := range channels {
		statements[i] = "LISTEN " + pgx.Identifier{channel}.Sanitize()
	}
	return p.exec(ctx, conn, strings.Join(statements, ";"))
}

func (p *Postgres) exec(ctx context.Context, conn *pgx.Conn, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	_, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return err
}

func release(waiting []chan struct{}) {
	for _, done := range waiting {
		if done != nil {
			close(done)
		}
	}
}
