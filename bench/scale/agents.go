package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent"
)

const interval = 15 * time.Second // between an agent's signs of life, pings of its coordinator connection

// fleet is agents that run in this process.
type fleet struct {
	n      int
	cancel context.CancelFunc
	wg     sync.WaitGroup
	log    *complaints
}

// complaints counts the warnings and errors of agents, by message, and records when agents reach what they log.
type complaints struct {
	slog.Handler
	mu      sync.Mutex // guards the fields below
	by      map[string]int
	reached map[string][]time.Time
}

// What agents log on their way back to a server.
const (
	welcomed  = "connected to the coordinator"
	connected = "connected to the server"
)

func newComplaints() *complaints {
	return &complaints{Handler: slog.DiscardHandler, by: map[string]int{}, reached: map[string][]time.Time{}}
}

func (c *complaints) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}
func (c *complaints) WithAttrs([]slog.Attr) slog.Handler { return c }
func (c *complaints) WithGroup(string) slog.Handler      { return c }

func (c *complaints) Handle(_ context.Context, r slog.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.Level >= slog.LevelWarn:
		c.by[r.Message]++
	case r.Message == welcomed, r.Message == connected:
		c.reached[r.Message] = append(c.reached[r.Message], r.Time)
	}
	return nil
}

// since describes when agents logged a message after the given time.
func (c *complaints) since(begin time.Time, message string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var after []time.Duration
	for _, at := range c.reached[message] {
		if at.After(begin) {
			after = append(after, at.Sub(begin))
		}
	}
	return fmt.Sprintf("%d × %s after %.2g, %.2g, %.2g s (first, median, last)", len(after), message,
		quantile(after, 0).Seconds(), quantile(after, 0.5).Seconds(), quantile(after, 1).Seconds())
}

// take returns the number of complaints since the last call, and the messages.
func (c *complaints) take() (n int, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, message := range slices.Sorted(maps.Keys(c.by)) {
		n += c.by[message]
		all = append(all, fmt.Sprintf("%d × %s", c.by[message], message))
	}
	clear(c.by)
	return n, strings.Join(all, ", ")
}

// joining is how many agents join at a time. In this process they share the cores with the server, so all at once would
// only measure how long each waits for a core.
const joining = 50

// launch starts the agents of up to n workspaces, and waits until all are connected.
func (d *deployment) launch(ctx context.Context, n int) (*fleet, error) {
	f := &fleet{log: newComplaints()}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f.cancel = cancel
	joined := 0
	for id, token := range d.executor.agents() {
		if f.n == n {
			break
		}
		if err := until(ctx, slow, "the agents before are connected", func() (ok bool, err error) {
			if f.n-joined >= joining {
				joined, err = d.connected(ctx, []uuid.UUID{})
			}
			return f.n-joined < joining, err
		}); err != nil {
			f.close()
			return nil, fmt.Errorf("%w: %d of %d", err, joined, f.n)
		}
		f.n++
		dir := filepath.Join(d.dir, "agents", id.String())
		if err := os.MkdirAll(dir, 0o700); err != nil {
			f.close()
			return nil, err
		}
		f.wg.Go(func() {
			err := agent.Run(run, agent.Options{
				Logger: slog.New(f.log), URL: d.url, Token: token, StateDir: dir, LogDir: dir,
			})
			if err != nil && run.Err() == nil {
				slog.New(f.log).Error("agent ended", "err", err)
			}
		})
	}
	if err := until(ctx, slow, "all agents are connected", func() (ok bool, err error) {
		joined, err = d.connected(ctx, []uuid.UUID{})
		return joined >= f.n, err
	}); err != nil {
		f.close()
		return nil, fmt.Errorf("%w: %d of %d", err, joined, f.n)
	}
	return f, nil
}

// close ends the agents.
func (f *fleet) close() {
	f.cancel()
	f.wg.Wait()
}

// connected returns how many agents the database shows connected to a server that is not one of those given.
func (d *deployment) connected(ctx context.Context, gone []uuid.UUID) (n int, err error) {
	err = d.db.Pool.QueryRow(ctx, `SELECT count(*) FROM workspace_agents
		WHERE last_connected_at IS NOT NULL AND disconnected_at IS NULL AND server_id <> ALL ($1)`, gone).Scan(&n)
	return n, err
}

// agents measures what idle agents cost.
func (b *bench) agents(ctx context.Context) error {
	d, err := b.deployment(ctx)
	if err != nil {
		return err
	}
	if err := b.ensureWorkspaces(ctx, d); err != nil {
		return err
	}
	empty, _, err := memory(d.server.Process.Pid)
	if err != nil {
		return err
	}
	before, err := d.usage()
	if err != nil {
		return err
	}
	began := time.Now()
	if b.fleet, err = d.launch(ctx, b.agentCount); err != nil {
		return err
	}
	n := float64(b.fleet.n)
	joined := time.Since(began)
	after, err := d.usage()
	if err != nil {
		return err
	}
	_, used := after.since(before)
	count, text := b.fleet.log.take()
	b.info(fmt.Sprintf("%d agents join", b.fleet.n), joined.Seconds(), "s", fmt.Sprintf("%d at a time; CPU each: server %.1f ms, database %.1f, agents %.1f; %d complaints %s", joining,
		milliseconds(used.server)/n, milliseconds(used.database)/n, milliseconds(used.load)/n, count, text))

	if err := pause(ctx, 2*b.idle); err != nil { // their last reports, and the collector
		return err
	}
	return b.rest(ctx, d, empty)
}

// rest measures a minute in which nothing happens.
func (b *bench) rest(ctx context.Context, d *deployment, empty int64) error {
	written, err := d.writes(ctx)
	if err != nil {
		return err
	}
	commits, err := d.commits(ctx)
	if err != nil {
		return err
	}
	before, err := d.usage()
	if err != nil {
		return err
	}
	if err := pause(ctx, b.idle); err != nil {
		return err
	}
	after, err := d.usage()
	if err != nil {
		return err
	}
	more, err := d.writes(ctx)
	if err != nil {
		return err
	}
	transactions, err := d.commits(ctx)
	if err != nil {
		return err
	}
	took, used := after.since(before)
	resident, share, err := memory(d.server.Process.Pid)
	if err != nil {
		return err
	}
	n := float64(b.fleet.n)
	heartbeats := n * took.Seconds() / interval.Seconds()
	var rows int64
	var where []string
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if delta := more[name] - written[name]; delta > 0 {
			if name != "servers" { // the server's own heartbeat
				rows += delta
			}
			where = append(where, fmt.Sprintf("%s %d", name, delta))
		}
	}
	b.atMost(fmt.Sprintf("%d idle agents: server CPU", b.fleet.n), 100*used.server.Seconds()/took.Seconds(), "% of a core", 5,
		fmt.Sprintf("database %.2g %%, agents %.3g %%; load %s", 100*used.database.Seconds()/took.Seconds(),
			100*used.load.Seconds()/took.Seconds(), load()))
	b.atMost(fmt.Sprintf("%d idle agents: server memory", b.fleet.n), float64(resident)/1e6, "MB resident", 400,
		fmt.Sprintf("%.0f MB proportional; %.0f MB before they joined; %d files", float64(share)/1e6,
			float64(empty)/1e6, descriptors(d.server.Process.Pid)))
	b.atMost("rows written per heartbeat", float64(rows)/heartbeats, "rows", 0,
		fmt.Sprintf("%.0f heartbeats; rows written: %s", heartbeats, strings.Join(where, ", ")))
	b.info("transactions per heartbeat", float64(transactions-commits)/heartbeats, "",
		"including those that do not depend on agents")
	own, _, err := memory(os.Getpid())
	if err != nil {
		return err
	}
	b.info("memory per agent of this process", float64(own)/1e6/n, "MB", "")
	return nil
}

// ensureWorkspaces makes enough workspaces have an agent.
func (b *bench) ensureWorkspaces(ctx context.Context, d *deployment) error {
	have := len(d.executor.agents())
	if have >= b.agentCount {
		return nil
	}
	stop, err := d.provisioners(ctx, 2, 4)
	if err != nil {
		return err
	}
	defer stop()
	if err := each(b.agentCount-have, 8, func(i int) error {
		_, err := d.workspace(ctx, d.admin, fmt.Sprint("a", i))
		return err
	}); err != nil {
		return err
	}
	return until(ctx, slow, "run the builds", func() (bool, error) { n, err := d.pending(ctx); return n == 0, err })
}

// restart measures how all agents return to a server that was stopped and started.
func (b *bench) restart(ctx context.Context) error {
	if b.fleet == nil {
		if err := b.agents(ctx); err != nil {
			return err
		}
	}
	d := b.deployed
	var gone []uuid.UUID
	if err := d.db.Pool.QueryRow(ctx, `SELECT COALESCE(array_agg(DISTINCT server_id), '{}') FROM workspace_agents WHERE server_id IS NOT NULL`).Scan(&gone); err != nil {
		return err
	}
	warned, known, _, err := d.complaints()
	if err != nil {
		return err
	}
	b.fleet.log.take()
	stopping := time.Now()
	stopped := "in order"
	if err := d.stop(); err != nil { // the server complains in its log; it is gone all the same
		stopped = err.Error()
	}
	b.info("server stops", time.Since(stopping).Seconds(), "s", "SIGTERM, no build running: "+stopped)
	postmaster, err := d.postmaster()
	if err != nil {
		return err
	}
	stored, err := familyCPU(postmaster)
	if err != nil {
		return err
	}
	spent, err := readCores()
	if err != nil {
		return err
	}
	began, err := d.start(ctx)
	if err != nil {
		return err
	}
	up := time.Since(began)
	loaded, err := cpu(os.Getpid())
	if err != nil {
		return err
	}
	if err := until(ctx, slow, "all agents connected again", func() (bool, error) { c, err := d.connected(ctx, gone); return c >= b.fleet.n, err }); err != nil {
		c, _ := d.connected(ctx, gone)
		return fmt.Errorf("%w: %d of %d", err, c, b.fleet.n)
	}
	back := time.Since(began)
	used, err := cpu(d.server.Process.Pid)
	if err != nil {
		return err
	}
	storing, err := familyCPU(postmaster)
	if err != nil {
		return err
	}
	own, err := cpu(os.Getpid())
	if err != nil {
		return err
	}
	now, err := readCores()
	if err != nil {
		return err
	}
	ours := used + storing - stored + own - loaded
	b.atMost(fmt.Sprintf("restart: %d agents are connected again", b.fleet.n), back.Seconds(), "s", 10,
		fmt.Sprintf("since the start of the process, which answers after %.2g s; %s; %s; %s; load %s", up.Seconds(),
			b.fleet.log.since(began, welcomed), b.fleet.log.since(began, connected), now.since(spent, back,
				ours), load()))
	b.atMost("restart: server CPU", used.Seconds(), "s", 8,
		fmt.Sprintf("database %.2g s, agents %.2g s", (storing-stored).Seconds(), (own-loaded).Seconds()))
	var lost int
	if err := d.db.Pool.QueryRow(ctx, `SELECT count(*) FROM workspace_agents WHERE disconnected_at > $1`, stopping).Scan(&lost); err != nil {
		return err
	}
	warnings, total, last, err := d.complaints()
	if err != nil {
		return err
	}
	if total == known {
		last = ""
	}
	count, text := b.fleet.log.take()
	b.atMost("restart: errors", float64(total-known+lost), "", 0,
		fmt.Sprintf("of the server %d %s; agents shown disconnected %d; warnings: server %d, agents %d (%s)",
			total-known, last, lost, warnings-warned, count, text))
	return nil
}
