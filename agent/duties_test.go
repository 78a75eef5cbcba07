//go:build linux

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// port connects to one of the agent's own ports.
func (w *world) port(t testing.TB, port uint16) net.Conn {
	t.Helper()
	w.mu.Lock()
	addr := w.ports[port].Addr().String()
	w.mu.Unlock()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// terminal opens a terminal, and returns a function that reads until the terminal shows a text.
func (w *world) terminal(t testing.TB, req ptywire.Request) (net.Conn, func(want string) string) {
	t.Helper()
	conn := w.port(t, meshport.Terminal)
	if err := ptywire.WriteJSON(conn, ptywire.Open, req); err != nil {
		t.Fatal(err)
	}
	var shown []byte
	return conn, func(want string) string {
		t.Helper()
		for !strings.Contains(string(shown), want) {
			kind, payload, err := ptywire.Read(conn)
			if err != nil {
				t.Fatalf("wait for %q: %v; shown %q", want, err, shown)
			}
			if kind == ptywire.Exit {
				shown = append(shown, "EXIT "...)
			}
			shown = append(shown, payload...)
		}
		return string(shown)
	}
}

func TestTerminal(t *testing.T) {
	t.Setenv("CODER_AGENT_TOKEN", "secret")
	t.Setenv("SHELL", "/bin/sh")
	w := newWorld(t)
	motd := filepath.Join(w.dir, "motd")
	if err := os.WriteFile(motd, []byte("be kind\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.manifest.MotdFile = motd
	w.run(t)
	id := uuid.New()
	conn, see := w.terminal(t, ptywire.Request{ID: id, Size: ptywire.Size{Height: 20, Width: 70}})
	see("be kind\r\n")
	if err := (ptywire.Message{Data: "echo $CODER_WORKSPACE_NAME:$TERM:$(pwd):$(env | grep -c secret):$(stty size)\n"}).Forward(conn); err != nil {
		t.Fatal(err)
	}
	see("dev:xterm-256color:" + w.dir + ":0:20 70")
	w.until(t, "a viewer in the statistics", func() bool {
		return len(w.stats) > 0 && w.stats[len(w.stats)-1].GetReconnectingPty() == 1
	})
	conn.Close()
	w.until(t, "no viewer in the statistics", func() bool { return w.stats[len(w.stats)-1].GetReconnectingPty() == 0 })
	_, again := w.terminal(t, ptywire.Request{ID: id})
	again("be kind\r\n")

	_, see = w.terminal(t, ptywire.Request{ID: uuid.New(), Command: "echo command; exit 4"})
	see(`EXIT {"code":4`)
	_, see = w.terminal(t, ptywire.Request{})
	see("not a request for a terminal")
}

func TestMetadataAndPorts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.manifest.Metadata = []*agentpb.Metadata{
		{Key: "name", Script: "echo $CODER_WORKSPACE_NAME", IntervalSeconds: 60},
		{Key: "env", Script: "#!/usr/bin/env sh\nenv | grep -c CODER_AGENT_TOKEN=", IntervalSeconds: 60},
		{Key: "much", Script: "head -c 100000000 /dev/zero | tr '\\0' x", IntervalSeconds: 60, TimeoutSeconds: 30},
		{Key: "late", Script: "echo so far; exec sleep 3600", IntervalSeconds: 60, TimeoutSeconds: 1},
	}
	w.run(t)
	client := w.api(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := client.WatchMetadata(ctx, connect.NewRequest(&agentpb.WatchMetadataRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	got := map[string]string{}
	for len(got) < 4 && stream.Receive() {
		for _, v := range stream.Msg().GetValues() {
			got[v.GetKey()] = fmt.Sprintf("%.20s|%d|%s", v.GetValue(), len(v.GetValue()), v.GetError())
		}
	}
	want := map[string]string{
		"name": "dev|3|", "env": "0|1|exit status 1", "much": strings.Repeat("x", 20) + "|2048|",
		"late": "so far|6|the script did not end within 1s",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metadata, %v (-want +got):\n%s", stream.Err(), diff)
	}
	cancel()

	l := listen(t)
	defer l.Close()
	resp, err := client.ListeningPorts(t.Context(), connect.NewRequest(&agentpb.ListeningPortsRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, p := range resp.Msg.GetPorts() {
		found = found || p.GetPort() == uint32(l.Addr().(*net.TCPAddr).Port) && p.GetNetwork() == "tcp" && p.GetProcessName() != ""
	}
	if !found {
		t.Errorf("port %s is not among %v", l.Addr(), resp.Msg.GetPorts())
	}

	near, far, idle := uuid.New(), uuid.New(), uuid.New()
	w.paths = []tailnet.PeerStatus{
		{ID: near, Path: tailnet.PathDirect, Latency: 1500 * time.Microsecond, Rx: 1, Tx: 2}, {ID: far, Path: tailnet.PathRelay, Latency: time.Second},
		{ID: idle, Path: tailnet.PathNone},
	}
	paths, err := client.Paths(t.Context(), connect.NewRequest(&agentpb.PathsRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	wantPaths := &agentpb.PathsResponse{Paths: []*agentpb.Path{
		{Peer: near[:], Way: agentpb.Path_WAY_DIRECT, LatencyUs: 1500, Rx: 1, Tx: 2}, {Peer: far[:], Way: agentpb.Path_WAY_RELAY, LatencyUs: 1_000_000}, {Peer: idle[:]},
	}}
	if diff := cmp.Diff(wantPaths, paths.Msg, protocmp.Transform()); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
}

func (w *world) api(t testing.TB) agentpbconnect.AgentAPIClient {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		w.mu.Lock()
		addr := w.ports[meshport.AgentRPC].Addr().String()
		w.mu.Unlock()
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return agentpbconnect.NewAgentAPIClient(&http.Client{Transport: transport}, "http://agent")
}

func TestAppHealth(t *testing.T) {
	t.Parallel()
	var status atomic.Int32
	status.Store(http.StatusOK)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	t.Cleanup(app.Close)
	w := newWorld(t)
	good, bad := uuid.New(), uuid.New()
	w.manifest.Apps = []*agentpb.App{
		{Id: good[:], Url: app.URL, IntervalSeconds: 1, Threshold: 1},
		{Id: bad[:], Url: "http://127.0.0.1:1/", IntervalSeconds: 1, Threshold: 2},
	}
	w.run(t)
	last := func(id uuid.UUID) agentpb.Health {
		all := w.health[string(id[:])]
		if len(all) == 0 {
			return 0
		}
		return all[len(all)-1]
	}
	w.until(t, "a healthy app", func() bool { return last(good) == agentpb.Health_HEALTH_HEALTHY })
	w.until(t, "an unhealthy app", func() bool { return last(bad) == agentpb.Health_HEALTH_UNHEALTHY })
	status.Store(http.StatusBadGateway)
	w.until(t, "a change", func() bool { return last(good) == agentpb.Health_HEALTH_UNHEALTHY })
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.health[string(good[:])]); n != 2 {
		t.Errorf("%d reports of two states", n)
	}
}

// TestHealthAgreesWithProxies checks that an app's health is what a browser gets that opens it: on loopback a certificate does not matter, nor which of
// its addresses the template names, and a redirect is an answer.
func TestHealthAgreesWithProxies(t *testing.T) {
	t.Parallel()
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			w.Header().Set("X-Large", strings.Repeat("x", 300<<10))
		case "/moved":
			http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusFound)
		case "/private":
			if _, password, _ := r.BasicAuth(); password != "pw" {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}
	})
	plain, secure := httptest.NewServer(answer), httptest.NewUnstartedServer(answer)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // the handshakes that a check gives up
	secure.StartTLS()
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	port := func(s *httptest.Server) string { return s.URL[strings.LastIndex(s.URL, ":"):] }
	w := newWorld(t)
	want := map[uuid.UUID]agentpb.Health{}
	names := map[uuid.UUID]string{}
	for url, healthy := range map[string]bool{
		"https://localhost" + port(secure): true, "https://127.0.0.1" + port(secure): true, "https://0.0.0.0" + port(secure): true, "https://[::1]" + port(secure): true,
		"http://127.0.0.9" + port(plain): true, "http://app.localhost" + port(plain): true, "http://localhost" + port(plain) + "/moved": true,
		"http://u:pw@localhost" + port(plain) + "/private": true,
		"http://localhost" + port(plain) + "/large":        false, "http://localhost" + port(secure) + "/x": true /* status 400 */, "https://localhost" + port(plain): false,
	} {
		id := uuid.New()
		if names[id], want[id] = url, agentpb.Health_HEALTH_UNHEALTHY; healthy {
			want[id] = agentpb.Health_HEALTH_HEALTHY
		}
		w.manifest.Apps = append(w.manifest.Apps, &agentpb.App{Id: id[:], Url: url, IntervalSeconds: 600, Threshold: 1})
	}
	w.run(t)
	for id, healthy := range want {
		w.until(t, "a check of "+names[id], func() bool { return len(w.health[string(id[:])]) > 0 })
		w.mu.Lock()
		if got := w.health[string(id[:])]; got[0] != healthy {
			t.Errorf("%s: got %v, want %s", names[id], got, healthy)
		}
		w.mu.Unlock()
	}
}

// TestStats checks that a connection that ends before the next report also counts as use.
func TestStats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(t)
	client := w.dial(t)
	w.until(t, "an ssh connection", func() bool { return len(w.stats) > 0 && w.stats[len(w.stats)-1].GetSsh() == 1 })
	editor, err := client.NewSession()
	if err == nil {
		err = errors.Join(editor.Setenv("CODER_SSH_SESSION_TYPE", "vscode"), editor.Start("sleep 3600"))
	}
	if err != nil {
		t.Fatal(err)
	}
	w.until(t, "an editor", func() bool {
		last := w.stats[len(w.stats)-1]
		return last.GetVscode() == 1 && last.GetSsh() == 0 && last.GetRxBytes() > 0 && last.GetTxBytes() > 0
	})
	client.Close()
	w.until(t, "its end", func() bool { return w.stats[len(w.stats)-1].GetSsh() == 0 })

	target := listen(t)
	defer target.Close()
	const question, answer = "how long is this?", "long enough"
	go func() {
		if conn, err := target.Accept(); err == nil {
			_, _ = io.ReadFull(conn, make([]byte, len(question))) // the report tells
			_, _ = io.WriteString(conn, answer)
			conn.Close()
		}
	}()
	w.mu.Lock()
	before := w.stats[len(w.stats)-1]
	w.mu.Unlock()
	handle, ok := w.tcp(netip.AddrPort{}, netip.AddrPortFrom(netip.IPv6Loopback(), uint16(target.Addr().(*net.TCPAddr).Port)))
	if !ok {
		t.Fatal("the port is refused")
	}
	ours, theirs := tcpPair(t)
	go handle(theirs)
	if _, err := io.WriteString(ours, question); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(ours); string(got) != answer {
		t.Errorf("got %q (%v), want %q", got, err, answer)
	}
	ours.Close()
	w.until(t, "a report of what a port has carried", func() bool {
		last := w.stats[len(w.stats)-1]
		return last.GetRxBytes() >= before.GetRxBytes()+uint64(len(question)) && last.GetTxBytes() >= before.GetTxBytes()+uint64(len(answer))
	})
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	s := newScript("echo tick", func(s *agentpb.Script) { s.RunOnStart, s.Cron = false, "* * * * * *" })
	broken := newScript("echo never", func(s *agentpb.Script) { s.RunOnStart, s.Cron = false, "now and then" })
	w := newWorld(t, s, broken)
	w.run(t)
	w.until(t, "two runs", func() bool { return len(w.lines[string(s.GetLogSourceId())]) >= 2 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended(s, "cron") == nil || w.ended(s, "start") != nil || len(w.lines[string(broken.GetLogSourceId())]) > 0 {
		t.Errorf("scripts reported: %v", w.done)
	}
}

// TestSocketOfScripts checks that scripts find the agent's socket in their environment.
func TestSocketOfScripts(t *testing.T) {
	t.Parallel()
	s := newScript(`[ -S "$CODER_AGENT_SOCKET_PATH" ] && echo there`, nil)
	w := newWorld(t, s)
	w.run(t)
	w.until(t, "the script's word", func() bool { return len(w.lines[string(s.GetLogSourceId())]) > 0 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := w.lines[string(s.GetLogSourceId())][0]; got != "there" {
		t.Errorf("socket: %q", got)
	}
}
