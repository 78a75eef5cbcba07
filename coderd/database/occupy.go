package database

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// serverLock is the advisory lock that a server holds for its entire lifetime. Servers share it. A server of an earlier
// version, which cannot run beside others, holds it alone. The number is arbitrary.
const serverLock = 0x636f6465726d7376

// OccupyPatience is how long a server waits for another one to end before it refuses to start. It is longer than
// PostgreSQL needs to notice that the other's machine is gone (see keepAlives).
const OccupyPatience = 15 * time.Second

// keepAlives make PostgreSQL notice within about ten seconds that the machine at the other end of the connection is
// gone. On a Unix socket they have no effect, and are not needed: when a process ends, its connections end too.
var keepAlives = map[string]string{
	"tcp_keepalives_idle": "4", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3",
}

// ServerLifetime is how long a server counts as running after its last heartbeat in the table servers, which it writes
// about every second.
const ServerLifetime = 15 * time.Second

// Occupancy is a server's hold on its database. It keeps servers out that cannot run beside this one, because they know
// nothing of others.
type Occupancy struct {
	source   Source
	cfg      *pgx.ConnConfig
	log      *slog.Logger
	patience time.Duration
	lost     chan error // capacity 1
	stop     context.CancelFunc
	done     sync.WaitGroup
}

// Occupy acquires the database for this process, before the process changes anything in it. It waits up to a minute for
// a database that is starting, and up to patience for a server that is ending, which it logs. It returns the fault
// Conflict if a server that cannot run beside others holds the database, and Invalid if a pooler in front of it does
// not keep sessions. The hold is a connection's lock: it ends with the process, however the process ends. Close the
// Occupancy after use.
func (s Source) Occupy(ctx context.Context, logger *slog.Logger, patience time.Duration) (*Occupancy, error) {
	pool, err := s.config()
	if err != nil {
		return nil, err
	}
	cfg := patient(pool.ConnConfig)
	for name, value := range keepAlives {
		cfg.RuntimeParams[name] = value
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	cfg.RuntimeParams["application_name"] = fmt.Sprintf("codermesh server %d on %.32s", os.Getpid(), host) // PostgreSQL keeps 63 bytes
	o := &Occupancy{source: s, cfg: cfg, log: logger, patience: patience, lost: make(chan error, 1)}
	conn, err := o.take(ctx)
	if err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	o.stop = stop
	o.done.Go(func() { o.hold(life, conn) })
	return o, nil
}

// Lost returns a channel that receives an error when another server has taken the database: this server must then end.
func (o *Occupancy) Lost() <-chan error { return o.lost }

// Close releases the database. It is idempotent.
func (o *Occupancy) Close() {
	o.stop()
	o.done.Wait()
}

// take connects and acquires the lock, retrying as long as patience allows.
func (o *Occupancy) take(ctx context.Context) (*pgx.Conn, error) {
	conn, err := o.source.awaitStart(ctx, o.cfg, o.log)
	if err != nil {
		return nil, err
	}
	if err := o.source.checkPooler(ctx, conn, o.cfg); err != nil {
		conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	retry := backoff.Backoff{Min: 20 * time.Millisecond, Max: 500 * time.Millisecond}
	limit := time.Now().Add(o.patience)
	for warned := false; ; warned = true {
		var taken bool
		if err = conn.QueryRow(ctx, "SELECT pg_try_advisory_lock_shared($1)", int64(serverLock)).Scan(&taken); err != nil {
			err = fmt.Errorf("lock the database: %w", translate(ctx, err))
			break
		}
		if taken {
			return conn, nil
		}
		other := o.holder(ctx, conn)
		if time.Now().After(limit) {
			err = fault.New(fault.Conflict, "A server that does not share its database uses this one: %s.", other).
				WithDetail("Its version cannot run beside others. Stop it first, or give this server its own database.")
			break
		}
		if !warned {
			o.log.Warn("a server that does not share its database uses this one, waiting for it to end", "server",
				other, "duration", o.patience)
		}
		if err = retry.Wait(ctx); err != nil {
			break
		}
	}
	conn.Close(context.WithoutCancel(ctx))
	return nil, err
}

// holder returns the name of the process that holds the lock, for messages.
func (o *Occupancy) holder(ctx context.Context, conn *pgx.Conn) string {
	var name, address string
	err := conn.QueryRow(ctx, `SELECT a.application_name, coalesce(host(a.client_addr), 'this machine') FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND l.classid::bigint = $1::bigint >> 32 AND l.objid::bigint = $1::bigint & 4294967295 AND l.objsubid = 1`, int64(serverLock)).Scan(&name, &address)
	if err != nil {
		return "its name is not known"
	}
	return fmt.Sprintf("%s (%s)", name, address)
}

// hold keeps the lock until ctx ends. If the connection is lost, for example because PostgreSQL restarted, hold
// reconnects and locks again.
func (o *Occupancy) hold(ctx context.Context, conn *pgx.Conn) {
	defer func() {
		if conn != nil {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			conn.Close(closing)
		}
	}()
	for {
		_, err := conn.WaitForNotification(ctx) // no notification ever arrives: this returns when the connection ends
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			continue
		}
		o.log.Warn("lost the database lock, taking it again", "err", err)
		conn.Close(ctx)
		conn = nil
		for conn == nil {
			if conn, err = o.take(ctx); ctx.Err() != nil {
				return
			}
			if fault.CodeOf(err) == fault.Conflict {
				o.lost <- err
				return
			}
		}
	}
}
