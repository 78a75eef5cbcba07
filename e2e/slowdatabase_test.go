package e2e_test

import (
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// wire carries the connections to a database. It can delay what the database answers, carry nothing, or refuse connections.
type wire struct {
	net.Listener
	to   string // the database's socket
	done sync.WaitGroup

	mu     sync.Mutex
	delay  time.Duration // of the answers
	away   bool          // connections are refused
	closed chan struct{}
	frozen chan struct{} // closed when data may pass
	conns  map[net.Conn]struct{}
}

// newWire returns a wire to the database at a URL, and the URL that leads through it.
func newWire(t *testing.T, database string) (*wire, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "e2ewire") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{to: filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432"), frozen: make(chan struct{}), closed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	close(w.frozen)
	if w.Listener, err = net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432")); err != nil {
		t.Fatal(err)
	}
	w.done.Go(w.serve)
	t.Cleanup(func() {
		close(w.closed)
		w.Close()
		w.refuse(true)
		w.done.Wait()
		os.RemoveAll(dir)
	})
	query := u.Query()
	query.Set("host", dir)
	u.RawQuery = query.Encode()
	return w, u.String()
}

func (w *wire) serve() {
	for {
		in, err := w.Accept()
		if err != nil {
			return
		}
		w.done.Go(func() {
			defer in.Close()
			w.mu.Lock()
			away := w.away
			w.mu.Unlock()
			if away {
				return
			}
			out, err := net.Dial("unix", w.to)
			if err != nil {
				return
			}
			defer out.Close()
			w.mu.Lock()
			w.conns[in], w.conns[out] = struct{}{}, struct{}{}
			w.mu.Unlock()
			var both sync.WaitGroup
			both.Go(func() { w.carry(out, in, false) })
			both.Go(func() { w.carry(in, out, true) })
			both.Wait()
			w.mu.Lock()
			delete(w.conns, in)
			delete(w.conns, out)
			w.mu.Unlock()
		})
	}
}

// carry copies from one end to the other.
func (w *wire) carry(to, from net.Conn, answers bool) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			w.mu.Lock()
			delay, frozen := w.delay, w.frozen
			w.mu.Unlock()
			if answers && delay > 0 {
				select {
				case <-time.After(delay): // the wire's latency, which the test is about
				case <-w.closed:
				}
			}
			select {
			case <-frozen:
			case <-w.closed:
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// slow delays the database's answers.
func (w *wire) slow(delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = delay
}

// refuse cuts all connections and refuses new ones, or accepts them again.
func (w *wire) refuse(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = away
	if away {
		for c := range w.conns {
			c.Close()
		}
	}
}

// freeze carries nothing until the returned function is called.
func (w *wire) freeze() (thaw func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	frozen := make(chan struct{})
	w.frozen = frozen
	return sync.OnceFunc(func() { close(frozen) })
}

// TestSlowDatabase checks that a slow, silent, restarted or missing database slows two servers, and breaks nothing: sessions, a terminal, a page's events and a
// build go on, and requests wait or name the reason.
func TestSlowDatabase(t *testing.T) {
	t.Parallel()
	f := prepareFleet(t, 2, "--provisioner-daemons=0")
	w, through := newWire(t, f.database)
	for _, s := range f.servers {
		s.args = append(s.args, "--postgres-url", through)
	}
	f.begin()
	l := f.load()
	back := func() {
		t.Helper()
		for _, s := range f.servers {
			testwait.Until(t, "the API answers", func() error {
				return call(http.MethodGet, "http://127.0.0.1:"+s.port+"/api/v2/users/me", f.token, nil, nil)
			})
		}
	}
	refused := func() {
		t.Helper()
		for _, s := range f.servers {
			at := "http://127.0.0.1:" + s.port
			testwait.Until(t, "the API answers 503", func() error {
				err := call(http.MethodGet, at+"/api/v2/users/me", f.token, nil, nil)
				refused := err != nil && strings.Contains(err.Error(), "503") && strings.Contains(err.Error(), "The database is not reachable.")
				return testwait.Unless(refused, "error %v", err)
			})
			if err := s.healthy(); err != nil {
				t.Errorf("a balancer would use no server: %v", err)
			}
		}
	}

	l.during("slow", func() {
		w.slow(50 * time.Millisecond)
		f.coder("list")
		f.coder("ssh", "dev", "--", "true")
	})
	w.slow(0)
	l.during("silent", func() {
		thaw := w.freeze()
		asked := make(chan error, 1)
		go func() { asked <- call(http.MethodGet, f.url()+"/api/v2/users/me", f.token, nil, nil) }()
		<-time.After(10 * time.Second) // the test is about these seconds
		thaw()
		if err := <-asked; err != nil {
			t.Errorf("a request that waited: %v", err)
		}
	})
	l.during("restarted", func() {
		f.restartDatabase(refused)
		back()
	})
	l.during("away", func() {
		w.refuse(true)
		lost := time.Now()
		refused()
		l.release() // the build goes on, and its end waits in the provisioner's journal
		if _, stderr, err := f.try("list"); err == nil || !strings.Contains(stderr, "error: The database is not reachable.") {
			t.Errorf("coder list: %v, %q; want the reason, after it has waited", err, stderr)
		}
		for tick := time.Tick(time.Second); time.Since(lost) < 30*time.Second; <-tick { // the test is about these seconds
			l.direct.quiet()
			l.relayed.quiet()
		}
		l.terminal.stays("away")
		w.refuse(false)
		back()
	})
	testwait.Until(t, "the agent is connected for the API, too", f.agentIs("dev", "connected"))
	l.end()
}
