package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// balanced is a deployment of three servers on one database. It is reached through a load balancer, nginx or HAProxy, that leads to them in
// turn and is configured with the text of docs/servers.md. Each server can also be reached directly, as though the balancer had chosen it.
type balanced struct {
	*deployment // through the balancer
	servers     []*deployment
	front       *exec.Cmd
	program     string // of front
	region      string // the address of its region proxy, if it has one
	turn        int    // how many servers the list in its configuration is rotated by
}

// prepareBalanced prepares the servers, without built-in provisioners. It does not start anything but the database.
func prepareBalanced(t *testing.T) *balanced {
	t.Helper()
	db := externalDatabase(t)()
	t.Cleanup(func() { stopDatabase(t, db) })
	b := &balanced{deployment: &deployment{server: newServer(t.TempDir()), t: t}}
	t.Cleanup(b.cleanup) // last: it kills every process that has the balancer's URL
	keys := filepath.Join(b.dir, "keys")
	if err := os.WriteFile(keys, []byte("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.extra = []string{"CODER_PROVISIONER_DAEMON_PSK=" + provisionerKey}
	for i := range 3 {
		s := &deployment{server: newServer(filepath.Join(b.dir, fmt.Sprint("server", i))), t: t}
		s.args = []string{"--postgres-url", db.URL(), "--state-encryption-key-file", keys, "--provisioner-daemons", "0", "--stun-address", "127.0.0.1:0", "--verbose"}
		s.extra = append(slices.Clone(b.extra), "CODER_ACCESS_URL="+b.url(), "CODER_PROXY_TRUSTED_ORIGINS=127.0.0.1/32")
		b.servers = append(b.servers, s)
	}
	return b
}

// start starts the servers at once, and the balancer.
func (b *balanced) start(program string) {
	b.t.Helper()
	var started sync.WaitGroup
	for i, s := range b.servers {
		b.t.Cleanup(func() {
			if err := s.end(syscall.SIGTERM); err != nil {
				b.t.Error(err)
			}
			if b.t.Failed() {
				b.t.Logf("log of server %d:\n%s", i, s.logText())
			}
		})
		started.Go(func() {
			if err := s.start(); err != nil {
				b.t.Error(err)
			}
		})
	}
	started.Wait()
	if b.t.Failed() {
		b.t.FailNow()
	}
	b.balance(program)
	b.coder(b.firstLogin()...)
	var err error
	if b.token, err = signIn(b.url(), "ada@example.com"); err != nil {
		b.t.Fatal(err)
	}
	for _, s := range b.servers {
		s.token = b.token
		s.coder("login", s.url(), "--token", b.token)
	}
}

// balance replaces the balancer.
func (b *balanced) balance(program string) {
	b.t.Helper()
	dir := filepath.Join(b.dir, program)
	args := frontArgs(b.t, dir, program, b.documented(program))
	if b.front != nil {
		b.unbalance(b.front)
	}
	cmd := exec.Command(program, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &said, time.Second
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.front, b.program = cmd, program
	b.t.Cleanup(func() {
		if b.front == cmd {
			b.unbalance(cmd)
		}
		if b.t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "log")) // only nginx has one
			b.t.Logf("%s: %s%s", program, &said, log[max(0, len(log)-4000):])
		}
	})
	testwait.Until(b.t, program+" leads to a server", b.healthy)
}

func (b *balanced) unbalance(cmd *exec.Cmd) {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.t.Error(err)
	}
	_ = cmd.Wait() // HAProxy reports the signal
}

// documented returns the balancer's configuration from the documentation, with the addresses of this test.
func (b *balanced) documented(program string) string {
	b.t.Helper()
	var servers []string
	for i := range b.servers {
		servers = append(servers, "127.0.0.1:"+b.servers[(i+b.turn)%3].port)
	}
	return documented(b.t, "servers", program, "127.0.0.1:"+b.port, "192.0.2.1", servers...)
}

// joinedAt counts the lines of each server's log that report that a participant of a kind has joined there.
func (b *balanced) joinedAt(kind string) (counts [3]int) {
	b.t.Helper()
	for i, s := range b.servers {
		log, err := os.ReadFile(filepath.Join(s.dir, "server.log"))
		if err != nil {
			b.t.Fatal(err)
		}
		for line := range bytes.Lines(log) {
			if bytes.Contains(line, []byte(`msg="mesh connection began"`)) && bytes.Contains(line, []byte(kind)) {
				counts[i]++
			}
		}
	}
	return counts
}

// arrives runs act, and returns the server that a participant then joins.
func (b *balanced) arrives(kind string, act func()) (at int) {
	b.t.Helper()
	before := b.joinedAt(kind)
	act()
	testwait.Until(b.t, kind+" has joined", func() error {
		now := b.joinedAt(kind)
		at = slices.IndexFunc([]int{0, 1, 2}, func(i int) bool { return now[i] > before[i] })
		return testwait.Unless(at >= 0, "joined at the servers %v times, as before", now)
	})
	return at
}

// everywhere restarts the balancer until the only participant of a kind, which is at the given server now, has been led to each server, and
// runs do once at each.
func (b *balanced) everywhere(what, kind string, at int, do func(at int)) {
	b.t.Helper()
	visited := map[int]bool{}
	for tries := 0; ; tries++ {
		if !visited[at] {
			visited[at] = true
			do(at)
		}
		if len(visited) == len(b.servers) {
			return
		}
		if tries > 20 {
			b.t.Fatalf("the balancer led %s to %d servers only", what, len(visited))
		}
		b.turn++ // the new process begins with another server
		at = b.arrives(kind, func() { b.balance(b.program) })
	}
}

// client returns an API client of one server.
func (d *deployment) client() *sdk.Client {
	d.t.Helper()
	base, err := url.Parse(d.url())
	if err != nil {
		d.t.Fatal(err)
	}
	return sdk.New(base, secret.Token(d.token), sdk.Options{})
}

// parallel runs do for each server and fails the test with the errors.
func (b *balanced) parallel(what string, do func(s *deployment, i int) error) {
	b.t.Helper()
	errs := make([]error, len(b.servers))
	var wait sync.WaitGroup
	for i, s := range b.servers {
		wait.Go(func() { errs[i] = do(s, i) })
	}
	wait.Wait()
	for i, err := range errs {
		if err != nil {
			b.t.Errorf("%s: server %d: %v", what, i, err)
		}
	}
}

// feed collects what a stream of events sends.
type feed struct {
	what  string
	ended chan struct{} // closed when the server has ended the stream
	mu    sync.Mutex
	text  []byte
}

// watch opens a stream of events at a path, over a websocket if socket is true.
func (d *deployment) watch(path string, socket bool) *feed {
	d.t.Helper()
	f := &feed{what: d.url() + path, ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(d.t.Context())
	var read func() ([]byte, error)
	var done sync.WaitGroup
	if socket {
		target, err := url.Parse(d.url() + path)
		if err != nil {
			d.t.Fatal(err)
		}
		ws, err := websock.Dial(ctx, target, websock.DialOptions{Header: http.Header{sdk.SessionHeader: {d.token}}, ReadLimit: 1 << 20})
		if err != nil {
			d.t.Fatal(err)
		}
		d.t.Cleanup(func() { ws.CloseNow() })
		read = func() ([]byte, error) { return ws.ReadAny(ctx) }
	} else {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.what, nil)
		if err != nil {
			d.t.Fatal(err)
		}
		req.Header.Set(sdk.SessionHeader, d.token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			d.t.Fatal(err)
		}
		d.t.Cleanup(func() { resp.Body.Close() })
		if resp.StatusCode != http.StatusOK {
			d.t.Fatalf("%s: %s", f.what, resp.Status)
		}
		piece := make([]byte, 64<<10)
		read = func() ([]byte, error) { n, err := resp.Body.Read(piece); return piece[:n], err }
	}
	done.Go(func() {
		defer close(f.ended)
		for {
			data, err := read()
			f.mu.Lock()
			f.text = append(f.text, data...)
			f.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	d.t.Cleanup(func() { cancel(); done.Wait() })
	return f
}

// sees waits until the stream has sent text.
func (f *feed) sees(t *testing.T, text string) {
	t.Helper()
	testwait.Until(t, fmt.Sprintf("%s sends %q", f.what, text), func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return testwait.Contains(string(f.text), text)
	})
}

// ends waits until the server has ended the stream.
func (f *feed) ends(t *testing.T) {
	t.Helper()
	testwait.For(t, f.what+" ends", f.ended)
}
