package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// fleet is several servers on one database, behind a balancer that its deployment's URL leads to.
type fleet struct {
	*deployment
	front   *balancer
	servers []*server
	// database is the database's URL; restartDatabase stops it, runs a function, and starts it again.
	database        string
	restartDatabase func(meanwhile func())
}

// newFleet starts n servers with args and signs the first user in. Each server has a folder of its own, and the same keys.
func newFleet(t *testing.T, n int, args ...string) *fleet {
	t.Helper()
	f := prepareFleet(t, n, args...)
	f.begin()
	return f
}

// begin starts all servers and signs the first user in.
func (f *fleet) begin() {
	f.t.Helper()
	for _, s := range f.servers {
		f.startServer(s)
	}
	f.coder(f.firstLogin()...)
	var err error
	if f.token, err = signIn(f.url(), "ada@example.com"); err != nil {
		f.t.Fatal(err)
	}
}

// prepareFleet is like newFleet, but starts no server.
func prepareFleet(t *testing.T, n int, args ...string) *fleet {
	t.Helper()
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys")
	if err := os.WriteFile(keys, []byte("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start := externalDatabase(t)
	db := start()
	t.Cleanup(func() { stopDatabase(t, db) })
	f := &fleet{deployment: &deployment{server: newServer(dir), t: t}, database: db.URL()}
	f.restartDatabase = func(meanwhile func()) {
		t.Helper()
		stopDatabase(t, db)
		meanwhile()
		db = start()
	}
	f.extra = []string{"CODER_PROVISIONER_DAEMON_PSK=" + provisionerKey}
	if err := os.MkdirAll(filepath.Join(dir, "home-admin"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.keepLogs)
	t.Cleanup(f.cleanup) // ends agents and what else is left
	f.front = newBalancer(t)
	f.base = "http://" + f.front.Addr().String()
	for i := range n {
		s := newServer(filepath.Join(dir, fmt.Sprint("server", i)))
		s.args = append([]string{"--postgres-url", db.URL(), "--state-encryption-key-file", keys, "--provisioner-isolation", "none", "--verbose", "--stun-address", "127.0.0.1:0"}, args...)
		s.extra = slices.Concat(f.extra, []string{"CODER_ACCESS_URL=" + f.url(), "CODER_CACHE_DIRECTORY=" + filepath.Join(dir, "cache")})
		f.servers = append(f.servers, s)
		f.front.servers = append(f.front.servers, "127.0.0.1:"+s.port)
		t.Cleanup(func() {
			if err := s.end(15); err != nil {
				t.Errorf("end server %d: %v", i, err)
			}
			if t.Failed() {
				t.Logf("log of server %d:\n%s", i, s.logText())
			}
		})
	}
	return f
}

// startServer starts one of the servers, and waits until the balancer uses it.
func (f *fleet) startServer(s *server) {
	f.t.Helper()
	if err := s.start(); err != nil {
		f.t.Fatal(err)
	}
	f.front.await(f.t, "127.0.0.1:"+s.port, true)
}

// logTime finds the time of a log line.
var logTime = regexp.MustCompile(`time=(\S+)`)

// connectedAfter returns how long after since a server other than the given one first logged text, such as msg="agent connected".
func (f *fleet) connectedAfter(text string, since time.Time, except *server) time.Duration {
	f.t.Helper()
	var first time.Duration
	testwait.Until(f.t, "another server logs "+text, func() error {
		for _, s := range f.servers {
			if s == except {
				continue
			}
			log, _ := os.ReadFile(filepath.Join(s.dir, "server.log")) // absent before the server's start
			for line := range strings.Lines(string(log)) {
				found := logTime.FindStringSubmatch(line)
				if found == nil || !strings.Contains(line, text) {
					continue
				}
				at, err := time.Parse(time.RFC3339Nano, found[1])
				if err == nil && at.After(since) && (first == 0 || at.Sub(since) < first) {
					first = at.Sub(since)
				}
			}
		}
		return testwait.Unless(first != 0, "no server has logged it since %s", since.Format(time.RFC3339Nano))
	})
	return first
}

// balancer leads TCP connections to healthy servers in turn, like a load balancer that checks /healthz every 100 ms.
type balancer struct {
	net.Listener
	servers []string // addresses; set before the first connection
	cancel  context.CancelFunc
	done    sync.WaitGroup

	mu    sync.Mutex
	only  string // leads all connections to this server; empty for none
	next  int
	up    map[string]bool
	conns map[net.Conn]struct{}
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &balancer{Listener: l, cancel: cancel, up: map[string]bool{}, conns: map[net.Conn]struct{}{}}
	b.done.Go(func() { b.check(ctx) })
	b.done.Go(b.serve)
	t.Cleanup(func() {
		cancel()
		l.Close()
		b.mu.Lock()
		for c := range b.conns {
			c.Close()
		}
		b.mu.Unlock()
		b.done.Wait()
	})
	return b
}

// pin leads new connections to one server, or to all in turn if addr is empty.
func (b *balancer) pin(addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.only = addr
}

// await waits until the balancer considers a server healthy, or not.
func (b *balancer) await(t *testing.T, addr string, up bool) {
	t.Helper()
	testwait.Until(t, fmt.Sprintf("the balancer considers %s healthy: %t", addr, up), func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		return testwait.Unless(b.up[addr] == up, "healthy are %v", b.up)
	})
}

func (b *balancer) check(ctx context.Context) {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for tick := time.Tick(100 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		for _, addr := range b.servers {
			resp, err := client.Get("http://" + addr + "/healthz")
			if err == nil {
				resp.Body.Close()
			}
			b.mu.Lock()
			b.up[addr] = err == nil && resp.StatusCode == http.StatusOK
			b.mu.Unlock()
		}
	}
}

// dial connects to the next healthy server. One that refuses is left out until the next check.
func (b *balancer) dial() (net.Conn, error) {
	for range b.servers {
		b.mu.Lock()
		addr := b.only
		for range b.servers {
			if addr != "" && b.up[addr] {
				break
			}
			addr = b.servers[b.next%len(b.servers)]
			b.next++
		}
		up := b.up[addr]
		b.mu.Unlock()
		if !up {
			break
		}
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return conn, nil
		}
		b.mu.Lock()
		b.up[addr] = false
		b.mu.Unlock()
	}
	return nil, errors.New("no server is healthy")
}

func (b *balancer) serve() {
	for {
		in, err := b.Accept()
		if err != nil {
			return
		}
		b.done.Go(func() {
			defer in.Close()
			out, err := b.dial()
			if err != nil {
				return
			}
			defer out.Close()
			b.mu.Lock()
			b.conns[in], b.conns[out] = struct{}{}, struct{}{}
			b.mu.Unlock()
			var both sync.WaitGroup
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				both.Go(func() {
					_, _ = io.Copy(pair[0], pair[1]) // either end may be killed
					in.Close()
					out.Close()
				})
			}
			both.Wait()
			b.mu.Lock()
			delete(b.conns, in)
			delete(b.conns, out)
			b.mu.Unlock()
		})
	}
}
