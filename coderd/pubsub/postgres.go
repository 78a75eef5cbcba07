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

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/backoff"
)

const (
	// silence is how long the connection may be silent before it is tested: a dead one gives no notice.
	silence = 30 * time.Second
	// answerLimit bounds every statement on the listening connection.
	answerLimit = 10 * time.Second
)

// Postgres is a PubSub over LISTEN and NOTIFY on its own connection. It reconnects when the connection is lost.
type Postgres struct {
	db     *database.DB
	log    *slog.Logger
	table  table
	counts counts

	stop     context.CancelFunc
	finished chan struct{} // closed when the listener has ended

	mu        sync.Mutex
	wanted    map[string][]chan struct{} // guarded by mu: channels to reconcile with, and the callers that wait for that
	interrupt context.CancelFunc         // guarded by mu: ends the current wait for a message, nil when there is none
	connected bool                       // guarded by mu
}

// NewPostgres starts to listen, and returns when it does or when the first try has failed. Close it before the
// database.
func NewPostgres(db *database.DB, logger *slog.Logger) *Postgres {
	ctx, stop := context.WithCancel(context.Background())
	p := &Postgres{db: db, log: logger, stop: stop, finished: make(chan struct{}), wanted: map[string][]chan struct{}{}}
	tried := make(chan struct{})
	go p.run(ctx, sync.OnceFunc(func() { close(tried) }))
	<-tried
	return p
}

// Close ends all subscriptions and waits for calls that have begun. It may be called again, but not by a subscriber.
func (p *Postgres) Close() {
	p.stop()
	<-p.finished
	p.table.close()
}

// Publish implements PubSub. It fails when the database is unavailable.
func (p *Postgres) Publish(ctx context.Context, channel, payload string) error {
	if err := p.db.Notify(ctx, dbsqlc.NotifyParams{Channel: channel, Payload: payload}); err != nil {
		p.counts.unpublished.Add(1)
		return fmt.Errorf("publish on %s: %w", channel, err)
	}
	p.counts.published.Add(1)
	p.counts.publishedBytes.Add(int64(len(payload)))
	return nil
}

// Subscribe implements PubSub. It returns when PostgreSQL listens on the channel, within a round trip; without a
// connection it returns at once, and fn is called with "" when there is one.
func (p *Postgres) Subscribe(channel string, fn func(string)) func() {
	s := newSubscriber(fn)
	p.counts.subscribed.Add(1)
	p.table.add(channel, s)
	p.reconcile(channel)
	return func() {
		if p.table.remove(channel, s) {
			p.announce(channel, nil)
		}
	}
}

// reconcile makes the listener listen on a channel, and waits for it, even if another subscriber already listens on it:
// PostgreSQL may not have received that request yet.
func (p *Postgres) reconcile(channel string) {
	done := make(chan struct{})
	if p.announce(channel, done) {
		select {
		case <-done:
		case <-p.finished:
		}
	}
}

// announce asks the listener to reconcile a channel, and to close done afterwards. It reports whether there is a
// connection; if not, the listener reconciles all channels when there is one, and done is not closed.
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

// run listens until ctx ends. It calls tried after each attempt to connect.
func (p *Postgres) run(ctx context.Context, tried func()) {
	defer close(p.finished)
	retry := backoff.Backoff{Min: 50 * time.Millisecond, Max: 5 * time.Second}
	for {
		err := p.session(ctx, func() { retry.Reset(); tried() })
		tried()
		if ctx.Err() != nil {
			return
		}
		p.counts.lost.Add(1)
		p.log.Warn("lost listening connection", "err", err)
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

// session connects, listens on all channels, and delivers messages until the connection is lost.
func (p *Postgres) session(ctx context.Context, healthy func()) error {
	dialCtx, cancel := context.WithTimeout(ctx, answerLimit)
	conn, err := p.db.Dial(dialCtx)
	cancel()
	if err != nil {
		return err
	}
	defer p.disconnect(ctx, conn)

	// From here on, new channels are announced to this session; it listens on the earlier ones at once.
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

// await delivers one message. It also returns nil when a channel must be reconciled, or after a silence that the
// connection survived.
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
		p.counts.messages.Add(1)
		p.counts.received.Add(int64(len(message.Payload)))
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

// serveWanted makes the connection listen on exactly the subscribers' channels.
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
