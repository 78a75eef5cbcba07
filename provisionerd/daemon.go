package provisionerd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/notify"
	"github.com/codermesh/codermesh/provisionerd/job"
)

const (
	// DefaultStopGrace is Options.StopGrace when that is 0.
	DefaultStopGrace = 5 * time.Minute
	// defaultLeaseGrace is assumed until the first Welcome.
	defaultLeaseGrace = 10 * time.Minute
	// deliverTime bounds how long Stop waits for results to be acknowledged. What is left is delivered by the next start.
	deliverTime = 5 * time.Second
	// interruptGrace is how long interrupted jobs may take to end in order when the daemon must go.
	interruptGrace = 15 * time.Second
)

// Options of a Daemon. StateDir, Executor and Dial are required.
type Options struct {
	Logger *slog.Logger // nil means silence
	// Name is the daemon's, for its log.
	Name string
	// Slots is how many jobs run at once. 0 means 1.
	Slots int
	// StateDir keeps the journals of leases. One daemon at a time uses it.
	StateDir string
	// Executor runs the jobs. It stays its maker's, to be closed after Stop.
	Executor job.Executor
	// Dial connects to the server's RPC service.
	Dial func(context.Context) (net.Conn, error)
	// StopGrace is how long a job that was asked to end in order may take before it is killed. 0 means DefaultStopGrace.
	StopGrace time.Duration
	// Heir makes a daemon that takes no jobs: it delivers what a killed one left in StateDir. See Delivered.
	Heir bool
	// PieceBytes is how much of a state one message carries; a smaller state is sent whole. 0 means 4 MiB, which is also the
	// most. Tests set less.
	PieceBytes int
	// Metrics is where the daemon's metrics are registered. Nil means nowhere.
	Metrics prometheus.Registerer
}

// Daemon leases jobs and runs them. It goes through New, Start and Stop once; Run is Start and Stop. Safe for concurrent use.
type Daemon struct {
	opts Options
	log  *slog.Logger

	ctx    context.Context // of everything the daemon does; ends last
	cancel context.CancelFunc
	wake   notify.Wake   // the session has something to send
	ready  chan struct{} // closed when the first session is open
	done   chan struct{} // closed when no further session is tried

	store   *store
	metrics *metrics
	running sync.WaitGroup // sessions and jobs

	mu        sync.Mutex // guards everything below
	state     state
	err       error
	draining  bool
	leases    map[leaseKey]*lease
	order     []*lease // of leases, in which they take turns at the stream
	slots     []bool   // taken
	session   *session // nil: no welcome yet, or the stream ended
	isReady   bool
	settled   bool             // the journals of an earlier process are taken up
	lastHeard time.Duration    // when the server last said something; as awake counts
	grace     time.Duration    // as the last Welcome said
	changed   notify.Broadcast // a lease ended, or a session came or went
	stops     int
}

type state int

const (
	idle state = iota
	started
	stopped
)

// New returns a daemon that does nothing yet.
func New(opts Options) *Daemon {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Slots <= 0 {
		opts.Slots = 1
	}
	if opts.PieceBytes <= 0 {
		opts.PieceBytes = defaultPieceBytes
	}
	if opts.StopGrace <= 0 {
		opts.StopGrace = DefaultStopGrace
	}
	d := &Daemon{
		opts: opts, log: opts.Logger, wake: notify.NewWake(), ready: make(chan struct{}), done: make(chan struct{}),
		leases: map[leaseKey]*lease{}, slots: make([]bool, opts.Slots), grace: defaultLeaseGrace,
	}
	if opts.Name != "" {
		d.log = d.log.With("peer", opts.Name)
	}
	d.draining = opts.Heir
	d.metrics = newMetrics(opts.Metrics, d)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Start takes the folder and begins: journals of an earlier process are taken up, and the server is dialled for as long as it
// takes. It does not wait for either. An error is a fault, and then Stop has nothing to do.
func (d *Daemon) Start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state != idle {
		return fault.New(fault.Conflict, "The provisioner has been started before")
	}
	store, err := openStore(d.opts.StateDir)
	if err != nil {
		return err
	}
	d.store, d.state, d.lastHeard = store, started, awake()
	d.running.Go(d.serve)
	d.running.Go(d.watchGrace)
	return nil
}

// Started is closed when the server has welcomed the daemon for the first time.
func (d *Daemon) Started() <-chan struct{} { return d.ready }

// Done is closed when the server refused the daemon for good, or Stop has ended it. Err says which.
func (d *Daemon) Done() <-chan struct{} { return d.done }

// Delivered waits until the server has everything that this daemon, or one before it in the folder, produced. False when ctx
// ended first.
func (d *Daemon) Delivered(ctx context.Context) bool {
	return d.await(ctx, nil, func() bool { return d.settled && len(d.leases) == 0 })
}

// Draining reports whether no further job is taken.
func (d *Daemon) Draining() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.draining
}

// Err is why the server refused the daemon; a fault. Nil while it serves.
func (d *Daemon) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Stop drains: no further job is taken, and those that run are finished. When ctx ends, or Stop is called a second time, they
// are interrupted, and killed a little later; their results stay in the journal for the next start if the server does not
// take them in time. It waits until nothing of the daemon runs.
func (d *Daemon) Stop(ctx context.Context) error {
	d.mu.Lock()
	d.draining = true
	d.stops++
	again := d.stops > 1
	if d.state == idle {
		d.state = stopped
		close(d.done)
		d.cancel()
	}
	if d.state == stopped {
		d.mu.Unlock()
		return nil
	}
	d.changed.Notify()
	d.mu.Unlock()
	d.wake.Poke()
	if again {
		d.interrupt("The provisioner was told to stop before the job had ended.")
	} else if !d.await(ctx, nil, func() bool { return d.workingLocked() == 0 || d.stops > 1 }) {
		d.interrupt("The provisioner was told to stop before the job had ended.")
	}
	patience := time.NewTimer(interruptGrace)
	defer patience.Stop()
	if !d.await(context.Background(), patience.C, func() bool { return d.workingLocked() == 0 }) {
		d.each(func(l *lease) { l.askForce() })
		d.await(context.Background(), nil, func() bool { return d.workingLocked() == 0 })
	}
	deliver := time.NewTimer(deliverTime)
	defer deliver.Stop()
	d.await(context.Background(), deliver.C, func() bool { return len(d.leases) == 0 || d.session == nil || d.state == stopped })
	d.cancel()
	d.running.Wait()
	d.abandon()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == stopped {
		return nil
	}
	d.state = stopped
	var errs []error
	for _, l := range d.leases {
		if l.disk != nil {
			errs = append(errs, l.disk.close())
		}
	}
	return errors.Join(append(errs, d.store.close())...)
}

// interrupt asks all jobs to end in order.
func (d *Daemon) interrupt(why string) {
	d.each(func(l *lease) { l.askStop(false, why) })
}

func (d *Daemon) each(do func(*lease)) {
	d.mu.Lock()
	all := append([]*lease(nil), d.order...)
	d.mu.Unlock()
	for _, l := range all {
		do(l)
	}
}

// busyLocked counts the slots that are taken. Called with mu held.
func (d *Daemon) busyLocked() int {
	n := 0
	for _, taken := range d.slots {
		if taken {
			n++
		}
	}
	return n
}

// await blocks until is, which is called with mu held, returns true; false when ctx or the timer ended first.
func (d *Daemon) await(ctx context.Context, timer <-chan time.Time, is func() bool) bool {
	for {
		d.mu.Lock()
		ok, changed := is(), d.changed.Changed()
		d.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		case <-timer:
			return false
		}
	}
}

// watchGrace interrupts the jobs when their leases may have ended: a Terraform state must never have two writers.
func (d *Daemon) watchGrace() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var over time.Duration // when the jobs were told, 0 for not
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-ticker.C:
		}
		d.mu.Lock()
		silent, grace, busy := awake()-d.lastHeard, d.grace, d.workingLocked() > 0
		d.mu.Unlock()
		switch {
		case silent < grace || !busy:
			over = 0
		case over == 0:
			over = awake()
			d.log.Error("server away for too long, stopping the jobs", "duration", silent)
			d.interrupt(fmt.Sprintf("The server was away for longer than %s, so the provisioner stopped the job. The state that was reached is kept.", grace))
		case awake()-over >= fenceForce:
			d.each(func(l *lease) { l.askForce() })
		}
	}
}

var processStart = time.Now()
