package jobs_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/provisionerd"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// link is a daemon's connection to the server, which tests can cut and block.
type link struct {
	w    *world
	from netip.Addr

	mu      sync.Mutex
	blocked bool
	conns   map[net.Conn]struct{}
}

var errBlocked = errors.New("the link is down")

func (l *link) dial(ctx context.Context) (net.Conn, error) {
	l.w.mu.Lock()
	addr := l.w.addr
	l.w.mu.Unlock()
	l.mu.Lock()
	blocked := l.blocked
	l.mu.Unlock()
	if blocked || addr == "" {
		return nil, errBlocked
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: l.from.AsSlice()}}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.blocked {
		return nil, errors.Join(errBlocked, conn.Close())
	}
	l.conns[conn] = struct{}{}
	return conn, nil
}

// cut breaks the current connections.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		conn.Close()
		delete(l.conns, conn)
	}
}

func (l *link) block(blocked bool) {
	l.mu.Lock()
	l.blocked = blocked
	l.mu.Unlock()
	if blocked {
		l.cut()
	}
}

// provisioner is a daemon with its link and executor.
type provisioner struct {
	*provisionerd.Daemon
	link *link
	exec *executor
	dir  string
	as   jobs.Daemon
}

var addresses struct {
	sync.Mutex
	next int
}

// register gives a daemon an address of its own on loopback.
func (w *world) register(d jobs.Daemon) netip.Addr {
	addresses.Lock()
	addresses.next++
	n := addresses.next
	addresses.Unlock()
	addr := netip.AddrFrom4([4]byte{127, byte(1 + n>>16), byte(n >> 8), byte(n)})
	w.mu.Lock()
	w.daemons[addr] = d
	w.mu.Unlock()
	return addr
}

// start runs a daemon. A nil executor succeeds at once.
func (w *world) start(name string, tags map[string]string, exec *executor, change func(*provisionerd.Options)) *provisioner {
	w.T.Helper()
	as := jobs.Daemon{ID: uuid.New(), Name: name, Tags: tags}
	if tags["scope"] == "user" {
		as.Owner = uuid.MustParse(tags["owner"])
	}
	return w.startIn(as, w.T.TempDir(), exec, change)
}

func (w *world) startIn(as jobs.Daemon, dir string, exec *executor, change func(*provisionerd.Options)) *provisioner {
	w.T.Helper()
	if exec == nil {
		exec = &executor{}
	}
	l := &link{w: w, from: w.register(as), conns: map[net.Conn]struct{}{}}
	opts := provisionerd.Options{Logger: logger(w.T), Name: as.Name, StateDir: dir, Executor: exec, Dial: l.dial}
	if change != nil {
		change(&opts)
	}
	p := &provisioner{provisionerd.New(opts), l, exec, dir, as}
	if err := p.Start(); err != nil {
		w.T.Fatalf("start daemon: %v", err)
	}
	w.T.Cleanup(p.kill)
	return p
}

// kill stops a daemon without notifying the server.
func (p *provisioner) kill() {
	p.link.block(true)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Stop(ctx); err != nil {
		p.link.w.T.Errorf("stop daemon %s: %v", p.as.Name, err)
	}
}

// crash turns the daemon into a ghost that the server cannot hear, and starts a new process of it on a copy of the current
// disk.
func (p *provisioner) crash(exec *executor) *provisioner {
	w := p.link.w
	w.T.Helper()
	p.link.block(true)
	w.mu.Lock()
	delete(w.daemons, p.link.from)
	w.mu.Unlock()
	dir := w.T.TempDir()
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		w.T.Fatal(err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".journal" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(p.dir, e.Name()))
		if err != nil {
			w.T.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), data, 0o600); err != nil {
			w.T.Fatal(err)
		}
	}
	return w.startIn(p.as, dir, exec, nil)
}

// executor runs what a test tells it to run.
type executor struct {
	run     func(ctx context.Context, stop <-chan struct{}, run job.Run) *provisionerpb.Result
	recover func(id uuid.UUID, epoch uint64) ([]byte, error)
	known   chan<- job.Known // receives the argument of Recover; nil to ignore it

	mu     sync.Mutex
	begun  []uint64 // epochs, in order
	active int
	most   int
}

func (e *executor) Name() string { return "test" }
func (e *executor) Close() error { return nil }

func (e *executor) Run(ctx context.Context, stop <-chan struct{}, run job.Run) *provisionerpb.Result {
	e.mu.Lock()
	e.begun = append(e.begun, run.Offer.GetEpoch())
	e.active++
	e.most = max(e.most, e.active)
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.active--
		e.mu.Unlock()
	}()
	if e.run == nil {
		return succeeded("done")
	}
	return e.run(ctx, stop, run)
}

func (e *executor) Recover(_ context.Context, id [16]byte, epoch uint64, known job.Known) (job.Remains, error) {
	if e.known != nil {
		e.known <- known
	}
	if e.recover == nil {
		return job.Remains{State: known.Checkpoint}, nil
	}
	state, err := e.recover(id, epoch)
	if state == nil {
		state = known.Checkpoint
	}
	return job.Remains{State: state}, err
}

func (e *executor) runs() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.begun)
}

func succeeded(state string) *provisionerpb.Result {
	return &provisionerpb.Result{Of: &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: &provisionerpb.BuildResult{State: []byte(state)}}}
}

func failed(state, why string) *provisionerpb.Result {
	r := succeeded(state)
	r.Error = cmp.Or(why, "broken")
	return r
}

func say(run job.Run, text string) {
	run.Sink.Log(&provisionerpb.LogLine{Level: provisionerpb.LogLevel_LOG_LEVEL_INFO, Source: provisionerpb.LogSource_LOG_SOURCE_EXECUTOR, Stage: "test", Output: text})
}

// blockUntil returns a run that ends when the gate closes or when it is asked to stop.
func blockUntil(gate <-chan struct{}) func(context.Context, <-chan struct{}, job.Run) *provisionerpb.Result {
	return func(_ context.Context, stop <-chan struct{}, _ job.Run) *provisionerpb.Result {
		select {
		case <-gate:
			return succeeded("")
		case <-stop:
			return failed("", "stopped")
		}
	}
}
