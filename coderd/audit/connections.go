package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/internal/notify"
)

// ConnectionType is how a workspace was reached.
type ConnectionType string

const (
	SSH            ConnectionType = "ssh"
	VSCode         ConnectionType = "vscode"
	JetBrains      ConnectionType = "jetbrains"
	Terminal       ConnectionType = "reconnecting_pty"
	App            ConnectionType = "workspace_app"
	PortForwarding ConnectionType = "port_forwarding"
)

// Paths of connections.
const (
	PathDirect  = "direct"
	PathRelayed = "relayed"
	pathProxied = "proxied" // a server is between the client and the agent
)

const (
	// maxWaiting bounds the reports that wait for the database. Any more are dropped and counted in the log.
	maxWaiting = 4096
	// connectionBatch is how many reports are stored in one transaction.
	connectionBatch = 100
	// gather is how long a report waits for others.
	gather = 500 * time.Millisecond
	// seeEvery is how often a server confirms the connections that it proxies, and lostAfter how long one is taken for
	// open without that.
	seeEvery, lostAfter = time.Minute, 5 * time.Minute
	// storeTimeout bounds one transaction, and storing what is left when the server stops.
	storeTimeout = 10 * time.Second
)

// Connections records the connections that this server proxies. Its methods do not block: rows are stored in batches in
// the background, so that the database never delays a session.
type Connections struct {
	db   *database.DB
	log  *slog.Logger
	wake notify.Wake
	now  func() time.Time

	mu      sync.Mutex                      // guards the fields below
	waiting []dbsqlc.ReportConnectionParams // oldest first
	open    map[uuid.UUID]struct{}
	dropped int
	// refusals are what users tried in vain lately, targets how many things each did, and unlisted how many times more
	// than is stored.
	refusals map[attempt]*refusal
	targets  map[whose]int
	unlisted map[whose]int
}

// NewConnections returns a recorder. Nothing is stored until Run.
func NewConnections(db *database.DB, log *slog.Logger) *Connections {
	return &Connections{
		db: db, log: log, wake: notify.NewWake(), now: time.Now, open: map[uuid.UUID]struct{}{},
		refusals: map[attempt]*refusal{}, targets: map[whose]int{}, unlisted: map[whose]int{},
	}
}

// Connection describes who reaches what.
type Connection struct {
	Type      ConnectionType
	Agent     uuid.UUID
	User      uuid.UUID // Nil: not signed in
	Target    string    // the app's slug, or the port
	Addr      netip.Addr
	UserAgent string
	Region    string // the region proxy that it goes through; "" for this server
	// Name says [owner/]workspace[.agent] in place of Agent, and Mesh that no server carries it. Both are for Refused.
	Name string
	Mesh bool
}

// Open is a connection that is being recorded.
type Open struct {
	to      *Connections
	row     dbsqlc.ReportConnectionParams
	once    sync.Once
	In, Out atomic.Int64 // bytes into and out of the workspace so far
}

// Begin records that a connection is open. The caller calls End once. A nil Connections records nothing.
func (c *Connections) Begin(what Connection) *Open {
	o := &Open{to: c, row: what.row(uuid.New(), time.Now())}
	c.add(o.row, true)
	return o
}

// row returns what is known of a connection that began at a time.
func (what Connection) row(id uuid.UUID, began time.Time) dbsqlc.ReportConnectionParams {
	row := dbsqlc.ReportConnectionParams{
		ID: id, ConnectTime: began.Truncate(time.Microsecond), Type: string(what.Type),
		SlugOrPort: bounded(what.Target), UserID: optional(what.User),
		UserAgent: bounded(what.UserAgent), Path: pathProxied, AgentID: what.Agent, Region: what.Region,
	}
	if what.Addr.IsValid() {
		row.Ip = what.Addr.String()
	}
	return row
}

// Ended is how a connection ended.
type Ended struct {
	Reason  string
	In, Out int64 // bytes into and out of the workspace
}

// Report records a connection that another process carries and tells any server about: it has begun, or ended if end is
// set. While it is open, that process confirms it with SeeConnections. A nil Connections records nothing.
func (c *Connections) Report(id uuid.UUID, began time.Time, what Connection, end *Ended) {
	row := what.row(id, began)
	if end != nil {
		now := time.Now().Truncate(time.Microsecond)
		row.DisconnectTime, row.DisconnectReason, row.BytesIn, row.BytesOut = &now, bounded(end.Reason), max(end.In,
			0), max(end.Out, 0)
	}
	c.add(row, false)
}

// End records that the connection has ended. status is 0 if there is none. Only the first call counts.
func (o *Open) End(reason string, status int) {
	o.once.Do(func() {
		row := o.row
		end := time.Now().Truncate(time.Microsecond)
		row.DisconnectTime, row.DisconnectReason, row.BytesIn, row.BytesOut = &end, bounded(reason), o.In.Load(), o.Out.Load()
		if status != 0 {
			code := int32(status)
			row.StatusCode = &code
		}
		o.to.add(row, true)
	})
}

// add stores a row soon. This server confirms its own connections while they are open.
func (c *Connections) add(row dbsqlc.ReportConnectionParams, own bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) >= maxWaiting {
		c.dropped++
		delete(c.open, row.ID) // its row, if there is one, ends as lost
		return
	}
	c.waiting = append(c.waiting, row)
	if row.DisconnectTime == nil && own {
		c.open[row.ID] = struct{}{}
	} else {
		delete(c.open, row.ID)
	}
	c.wake.Poke()
}

// Confirm notes that a connection which another program reports goes on.
func (c *Connections) Confirm(ctx context.Context, id uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := c.db.SeeConnections(ctx, []uuid.UUID{id}); err != nil {
		return fmt.Errorf("confirm connection: %w", err)
	}
	return nil
}

// See confirms this server's connections, and ends those of servers that no longer do. Run calls it every minute.
func (c *Connections) See(ctx context.Context) error {
	c.mu.Lock()
	ids := slices.Collect(maps.Keys(c.open))
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if len(ids) > 0 {
		if err := c.db.SeeConnections(ctx, ids); err != nil {
			return fmt.Errorf("confirm connections: %w", err)
		}
	}
	if _, err := c.db.EndLostConnections(ctx, lostAfter.Seconds()); err != nil {
		return fmt.Errorf("end lost connections: %w", err)
	}
	return nil
}

// Run stores what is recorded until ctx ends, and then what is left, for at most ten seconds.
func (c *Connections) Run(ctx context.Context) {
	retry := backoff.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	minute := time.NewTicker(seeEvery)
	defer minute.Stop()
	for {
		select {
		case <-minute.C:
			if err := c.See(ctx); err != nil && ctx.Err() == nil {
				c.log.Warn("cannot confirm connections, trying again", "err", err)
			}
			if err := c.storeRefusals(ctx, false); err != nil && ctx.Err() == nil {
				c.log.Warn("cannot store refused connections, trying again", "err", err)
			}
			continue
		case <-c.wake:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
			defer cancel()
			if err := errors.Join(c.store(last), c.storeRefusals(last, true)); err != nil {
				c.log.Warn("cannot store connections", "err", err)
			}
			return
		}
		if backoff.Sleep(ctx, gather, nil) != nil {
			c.wake.Poke()
			continue
		}
		for err := c.store(ctx); err != nil && ctx.Err() == nil; err = c.store(ctx) {
			c.log.Warn("cannot store connections, trying again", "err", err)
			if retry.Wait(ctx) != nil {
				break
			}
		}
		retry.Reset()
	}
}

// store stores everything that waits, batch by batch, and new refusals.
func (c *Connections) store(ctx context.Context) error {
	for {
		c.mu.Lock()
		batch := c.waiting[:min(len(c.waiting), connectionBatch)]
		dropped := c.dropped
		c.dropped = 0
		c.mu.Unlock()
		if dropped > 0 {
			c.log.Error("connections are missing in the log: too many at once", "rows", dropped)
		}
		if len(batch) == 0 {
			return c.storeRefusals(ctx, false)
		}
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		err := c.db.InTx(ctx, func(q *dbsqlc.Queries) error {
			for _, row := range batch {
				if _, err := q.ReportConnection(ctx, row); err != nil {
					return err
				}
			}
			return nil
		})
		cancel()
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.waiting = c.waiting[len(batch):]
		c.mu.Unlock()
	}
}

// Counted returns conn, to the workspace, with its bytes counted in o.
func Counted(conn net.Conn, o *Open) net.Conn { return counted{conn, o} }

type counted struct {
	net.Conn
	open *Open
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.open.Out.Add(int64(n))
	return n, err
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.open.In.Add(int64(n))
	return n, err
}

// CloseWrite ends the sending side, if the connection can do that.
func (c counted) CloseWrite() error { return netio.CloseWrite(c.Conn) }
