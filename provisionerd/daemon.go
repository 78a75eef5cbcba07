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
	"go.opentelemetry.io/otel/trace"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

const (
	// DefaultStopGrace is the default of Options.StopGrace.
	DefaultStopGrace = 5 * time.Minute
	// defaultLeaseGrace applies until the first Welcome.
	defaultLeaseGrace = 10 * time.Minute
	// deliverTime bounds how long Stop waits for results to be acknowledged. The next start delivers the rest.
	deliverTime = 5 * time.Second
	// interruptGrace is how long interrupted jobs may take to end gracefully when the daemon must stop.
	interruptGrace = 15 * time.Second
)

// Options configure a Daemon. StateDir, Executor and Dial are required.
type Options struct {
	Logger *slog.Logger // nil discards the log
	// Name is the daemon's name in its log.
	Name string
	// Slots is how many jobs run at once. 0 means 1.
	Slots int
	// StateDir keeps the journals of leases. One daemon at a time uses it.
	StateDir string
	// Executor runs the jobs. The caller owns it, and closes it after Stop.
	Executor job.Executor
	// Dial connects to the server's RPC service.
	Dial func(context.Context) (net.Conn, error)
	// StopGrace is how long a job may take to end gracefully before it is killed. 0 means DefaultStopGrace.
	StopGrace time.Duration
	// Successor makes a daemon that takes no jobs, but delivers what a killed one left in StateDir. See Delivered.
	Successor bool
	// Once makes a daemon that runs one job and takes no other. Served tells when the server has its result. Slots must
	// be 1.
	Once bool
	// PieceBytes is how much of a state one message carries; a smaller state is sent whole. 0 means 4 MiB, which is
	// also the maximum. Tests use smaller values.
	PieceBytes int
	// Metrics registers the daemon's metrics. Nil registers none.
	Metrics prometheus.Registerer
	// Tracer records jobs and their phases. Nil records nothing.
	Tracer trace.TracerProvider
}

// Daemon leases jobs and runs them. Start and Stop work once. It is safe for concurrent use.
type Daemon struct {
	opts Options
	log  *slog.Logger

	ctx    context.Context // of all the daemon's work; ends last
	cancel context.CancelFunc
	wake   notify.Wake   // the session has something to send
	ready  chan struct{} // closed when the first session is open
	done   chan struct{} // closed once the daemon attempts no further session

	store   *store
	metrics *metrics
	running sync.WaitGroup // sessions and jobs

	mu       sync.Mutex // guards everything below
	state    state
	err      error
	draining bool
	served   bool // the one job of Options.Once has begun
	leases   map[leaseKey]*lease
	order    []*lease // the order in which leases take turns on the stream
	slots    []bool   // taken
	session  *session // nil: no welcome yet, or the stream ended
	isReady  bool
	settled  bool             // the journals of an earlier process are recovered
	lastSeen time.Duration    // when the server last sent something, by awake
	grace    time.Duration    // of the last Welcome
	changed  notify.Broadcast // a lease ended, or a session came or went
	stops    int
}

type state int

const (
	idle state = iota
	started
	stopped
)

// New returns a daemon that does nothing until Start.
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
	d.draining = opts.Successor
	d.metrics = newMetrics(opts.Metrics, d)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Start locks the folder and starts the daemon, which recovers the journals of an earlier process and dials the server
// until it answers. Start does not wait for either. Its error is a fault; Stop is then unnecessary.
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
	d.store, d.state, d.lastSeen = store, started, awake()
	d.running.Go(d.serve)
	d.running.Go(d.watchGrace)
	return nil
}

// Started is closed when the server has welcomed the daemon for the first time.
func (d *Daemon) Started() <-chan struct{} { return d.ready }

// Done is closed when the server has refused the daemon for good, or Stop has ended it. Err reports which.
func (d *Daemon) Done() <-chan struct{} { return d.done }

// Delivered waits until the server has everything that this daemon, or an earlier one in the folder, produced. It
// returns false if ctx ends first.
func (d *Daemon) Delivered(ctx context.Context) bool {
	return d.await(ctx, nil, func() bool { return d.settled && len(d.leases) == 0 })
}

// Served waits until the one job of Options.Once has run, and the server has everything that it produced. It returns
// false if ctx ends first.
func (d *Daemon) Served(ctx context.Context) bool {
	return d.await(ctx, nil, func() bool { return d.served && len(d.leases) == 0 })
}

// Draining reports whether the daemon accepts no further jobs.
func (d *Daemon) Draining() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.draining
}

// Err returns the fault with which the server refused the daemon, or nil.
func (d *Daemon) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Stop drains the daemon: it accepts no further jobs and waits for running ones, whose logs say when ctx will end. When
// ctx ends, or Stop is called again, it interrupts them, and kills them a little later. Results that the server does
// not acknowledge in time stay in the journal for the next start. Stop returns when all of the daemon's goroutines have
// ended.
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
	} else if !d.drain(ctx) {
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
	d.await(context.Background(), deliver.C,
		func() bool { return len(d.leases) == 0 || d.session == nil || d.state == stopped })
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

// countDown is the interval at which a daemon that drains logs what it waits for.
const countDown = 10 * time.Second

// drain waits until no job runs or Stop is called again, and returns false if ctx ends first. The users who wait for
// the jobs read in their logs how long they may run on, and the operator in the daemon's.
func (d *Daemon) drain(ctx context.Context) bool {
	end, bounded := ctx.Deadline()
	left := func() time.Duration { return time.Until(end).Round(time.Second) }
	if bounded && left() > 0 {
		why := fmt.Sprintf("The provisioner is stopping. It interrupts this job if it has not ended in %s.", left())
		d.each(func(l *lease) { l.Log(ownLine(provisionerpb.LogLevel_LOG_LEVEL_WARN, "Stopping", why)) })
	}
	for {
		d.mu.Lock()
		jobs := d.workingLocked()
		d.mu.Unlock()
		if log := d.log.With("jobs", jobs); jobs > 0 && bounded {
			log.Info("waiting for running jobs", "left", left())
		} else if jobs > 0 {
			log.Info("waiting for running jobs")
		}
		tick := time.NewTimer(countDown)
		over := d.await(ctx, tick.C, func() bool { return d.workingLocked() == 0 || d.stops > 1 })
		tick.Stop()
		if over || ctx.Err() != nil {
			return over
		}
	}
}

// interrupt asks all jobs to end gracefully.
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

// await blocks until is returns true. It calls is with mu held, and returns false if ctx or the timer ends first.
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

// watchGrace interrupts the jobs when their leases may have ended, because a Terraform state must never have two
// writers.
func (d *Daemon) watchGrace() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var over time.Duration // when the jobs were interrupted, or 0
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-ticker.C:
		}
		d.mu.Lock()
		silent, grace, busy := awake()-d.lastSeen, d.grace, d.workingLocked() > 0
		d.mu.Unlock()
		switch {
		case silent < grace || !busy:
			over = 0
		case over == 0:
			over = awake()
			d.log.Error("server away for too long, stopping the jobs", "duration", silent)
			d.interrupt(fmt.Sprintf("The server was away for longer than %s, so the provisioner stopped the job. The "+
				"state that was reached is kept.", grace))
		case awake()-over >= fenceForce:
			d.each(func(l *lease) { l.askForce() })
		}
	}
}

var processStart = time.Now()
