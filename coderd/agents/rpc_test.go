package agents_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/agent/agentpb"
	"github.com/codermesh/codermesh/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/coderd/agents"
	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/provisionerd/provisionerpb"
)

// serve puts the service's RPCs on loopback. Agents come from addresses of 127.0.0.0/8, which callers gives names.
type server struct {
	t       *testing.T
	url     string
	callers sync.Map // netip.Addr → uuid.UUID
	next    atomic.Uint32
}

func serve(t *testing.T, s *agents.Service) *server {
	t.Helper()
	sv := &server{t: t}
	mux := http.NewServeMux()
	mux.Handle(s.RPCHandler(func(addr netip.Addr) (uuid.UUID, bool) {
		id, ok := sv.callers.Load(addr.Unmap())
		if !ok {
			return uuid.Nil, false
		}
		return id.(uuid.UUID), true
	}))
	hs := httptest.NewUnstartedServer(mux)
	hs.Config.Protocols = new(http.Protocols)
	hs.Config.Protocols.SetUnencryptedHTTP2(true)
	hs.Start()
	t.Cleanup(hs.Close)
	t.Cleanup(s.Stop)
	sv.url = hs.URL
	return sv
}

// client is an agent's; uuid.Nil for a caller that is none.
func (s *server) client(agent uuid.UUID) agentpbconnect.AgentServiceClient {
	addr := netip.AddrFrom4([4]byte{127, 0, 1, byte(s.next.Add(1))})
	if agent != uuid.Nil {
		s.callers.Store(addr, agent)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: addr.AsSlice()}}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialContext: dialer.DialContext}
	s.t.Cleanup(transport.CloseIdleConnections)
	return agentpbconnect.NewAgentServiceClient(&http.Client{Transport: transport}, s.url)
}

type stream = connect.BidiStreamForClient[agentpb.AgentMessage, agentpb.ServerMessage]

func hello(t *testing.T, c agentpbconnect.AgentServiceClient) *stream {
	t.Helper()
	st := c.Connect(t.Context())
	if err := st.Send(&agentpb.AgentMessage{Message: &agentpb.AgentMessage_Hello{Hello: &agentpb.Hello{
		Version: "v2.31.0", ApiVersion: "2.0", OperatingSystem: "linux", Architecture: "arm64", ExpandedDirectory: "/home/ann", ProtocolVersion: 1,
	}}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.CloseRequest(); st.CloseResponse() })
	return st
}

// beat sends a heartbeat and waits for its answer.
func beat(t *testing.T, st *stream, nonce uint64) {
	t.Helper()
	if err := st.Send(&agentpb.AgentMessage{Message: &agentpb.AgentMessage_Heartbeat{Heartbeat: &agentpb.Heartbeat{Nonce: nonce, RelayLatencyUs: 1500}}}); err != nil {
		t.Fatal(err)
	}
	msg, err := st.Receive()
	if err != nil {
		t.Fatal(err)
	}
	if got := msg.GetHeartbeatAck().GetNonce(); got != nonce {
		t.Fatalf("answer to heartbeat %d: got %v", nonce, msg)
	}
}

// running is a world with one agent of a start that has succeeded.
func running(t *testing.T) (*world, build, uuid.UUID) {
	t.Helper()
	w := newWorld(t)
	b := w.build(w.workspace(w.owner, "dev"), sdk.TransitionStart, sdk.JobSucceeded)
	id := uuid.New()
	w.store(b, true, resource(id))
	return w, b, id
}

func (w *world) is(id uuid.UUID, want sdk.AgentStatus) func(context.Context) bool {
	return func(ctx context.Context) bool {
		a, err := w.db.GetAgent(ctx, id)
		return err == nil && agents.Status(time.Now(), a) == want
	}
}

func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	w, _, _ := running(t)
	c := serve(t, agents.New(w.opts)).client(uuid.Nil)
	now := timestamppb.Now()
	st := hello(t, c)
	_, err := st.Receive()
	for name, got := range map[string]error{
		"Connect":  err,
		"Manifest": second(c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{}))),
		"Lifecycle": second(c.Lifecycle(t.Context(), connect.NewRequest(&agentpb.LifecycleRequest{
			State: agentpb.LifecycleState_LIFECYCLE_STATE_READY, ChangedAt: now,
		}))),
		"Logs":         second(c.Logs(t.Context(), connect.NewRequest(&agentpb.LogsRequest{}))),
		"AppHealth":    second(c.AppHealth(t.Context(), connect.NewRequest(&agentpb.AppHealthRequest{}))),
		"Stats":        second(c.Stats(t.Context(), connect.NewRequest(&agentpb.StatsRequest{}))),
		"GitSSHKey":    second(c.GitSSHKey(t.Context(), connect.NewRequest(&agentpb.GitSSHKeyRequest{}))),
		"ExternalAuth": second(c.ExternalAuth(t.Context(), connect.NewRequest(&agentpb.ExternalAuthRequest{Of: &agentpb.ExternalAuthRequest_ProviderId{ProviderId: "x"}}))),
		"ScriptDone":   second(c.ScriptDone(t.Context(), connect.NewRequest(&agentpb.ScriptDoneRequest{}))),
	} {
		if connect.CodeOf(got) != connect.CodePermissionDenied {
			t.Errorf("%s: got %v, want permission denied", name, got)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestManifest(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	c := serve(t, agents.New(w.opts)).client(id)
	got, err := c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	m := got.Msg
	if m.GetAgentName() != "main" || m.GetWorkspaceName() != "dev" || m.GetOwnerName() != "ann" || m.GetOwnerEmail() != "ann@example.com" ||
		m.GetAccessUrl() != w.opts.AccessURL || !m.GetStartBlocksLogin() || m.GetIncarnation() != uint64(b.number) ||
		uuid.UUID(m.GetAgentId()) != id || uuid.UUID(m.GetWorkspaceId()) != b.workspace {
		t.Errorf("manifest: got %v", m)
	}
	if diff := cmp.Diff(map[string]string{"A": "1"}, m.GetEnv()); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if len(m.GetScripts()) != 1 || m.GetScripts()[0].GetScript() != "true" || len(m.GetScripts()[0].GetLogSourceId()) != 16 {
		t.Errorf("scripts: got %v", m.GetScripts())
	}
	w.revoke(b.workspace)
	if _, err := c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{})); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("manifest of a revoked agent: %v, want permission denied", err)
	}
}

// An agent that comes while its build runs is let in and gets no manifest until the build has described it. Then it is told.
func TestManifestIsWholeOrWithheld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.build(w.workspace(w.owner, "dev"), sdk.TransitionStart, sdk.JobRunning)
	id := uuid.New()
	w.store(b, false, resource(id, func(a *provisionerpb.Agent) { a.Scripts, a.Apps = nil, nil }))
	s := agents.New(w.opts)
	s.Start()
	c := serve(t, s).client(id)
	manifest := func(accepts bool) (*agentpb.ManifestResponse, error) {
		got, err := c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{AcceptsPending: accepts}))
		if err != nil {
			return nil, err
		}
		return got.Msg, nil
	}
	if _, err := manifest(false); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("an agent that does not know of pending manifests: %v, want unavailable", err)
	}
	m, err := manifest(true)
	if err != nil {
		t.Fatal(err)
	}
	if !m.GetPending() || len(m.GetEnv()) > 0 || len(m.GetMetadata()) > 0 || m.GetIncarnation() != uint64(b.number) {
		t.Errorf("pending manifest: got %v", m)
	}
	say := func(h *agentpb.Hello) *stream {
		st := c.Connect(t.Context())
		h.ProtocolVersion = 1
		if err := st.Send(&agentpb.AgentMessage{Message: &agentpb.AgentMessage_Hello{Hello: h}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.CloseRequest(); st.CloseResponse() })
		return st
	}
	told := func(st *stream) {
		t.Helper()
		msg, err := st.Receive()
		if err != nil || msg.GetManifestChanged() == nil {
			t.Fatalf("got %v, %v; want that the manifest has changed", msg, err)
		}
	}
	st := say(&agentpb.Hello{Incarnation: uint64(b.number), ManifestPending: true})
	beat(t, st, 1)
	await(t, "connection", w.is(id, sdk.AgentConnected))
	w.store(b, false, resource(id, func(a *provisionerpb.Agent) { a.Complete = true }))
	told(st)
	if m, err = manifest(true); err != nil || m.GetPending() || len(m.GetScripts()) != 1 || len(m.GetApps()) != 1 || m.GetEnv()["A"] != "1" {
		t.Errorf("whole manifest: got %v, %v", m, err)
	}
	if err := st.Send(&agentpb.AgentMessage{Message: &agentpb.AgentMessage_Hello{Hello: &agentpb.Hello{Incarnation: uint64(b.number), ExpandedDirectory: "/late"}}}); err != nil {
		t.Fatal(err)
	}
	await(t, "second hello", func(context.Context) bool { return w.agent(id).ExpandedDirectory == "/late" })
	// The build described the agent between its manifest and its stream: it is told at once.
	told(say(&agentpb.Hello{Incarnation: uint64(b.number), ManifestPending: true}))
	// The same for another build's manifest.
	told(say(&agentpb.Hello{Incarnation: uint64(b.number) + 1}))
}

// What a build reports at its end is complete, whatever its provisioner says.
func TestFinalReportIsComplete(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	if !w.agent(id).Complete {
		t.Error("an agent of a build that has ended has no manifest")
	}
	// The next build keeps the agent and has not described it yet.
	next := w.build(b.workspace, sdk.TransitionStart, sdk.JobRunning)
	w.store(next, false, resource(id))
	if w.agent(id).Complete {
		t.Error("the manifest of a running build is called whole before the provisioner says so")
	}
	w.store(next, true, resource(id))
	if !w.agent(id).Complete {
		t.Error("the manifest is not whole at the build's end")
	}
}

// counter counts the queries of a pool.
type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}
func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// counted is the database again, with its queries counted.
func counted(t *testing.T, db *database.DB) (*database.DB, *counter) {
	t.Helper()
	c := &counter{}
	cfg := db.Pool.Config()
	cfg.ConnConfig.Tracer = c
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &database.DB{Queries: dbsqlc.New(pool), Pool: pool}, c
}

func TestConnection(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	var queries *counter
	w.opts.DB, queries = counted(t, w.db)
	s := agents.New(w.opts)
	c := serve(t, s).client(id)
	st := hello(t, c)
	beat(t, st, 1)
	a := w.agent(id)
	if agents.Status(time.Now(), a) != sdk.AgentConnected || a.Version != "v2.31.0" || a.Architecture != "arm64" {
		t.Errorf("connected agent: got %+v", a)
	}
	before := queries.n.Load()
	for n := range uint64(200) {
		beat(t, st, n)
	}
	if got := queries.n.Load() - before; got != 0 {
		t.Errorf("200 heartbeats made %d queries, want none", got)
	}
	if err := st.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	await(t, "disconnection", w.is(id, sdk.AgentDisconnected))
	beat(t, hello(t, c), 1)
	if !w.is(id, sdk.AgentConnected)(t.Context()) {
		t.Error("the agent is back and not connected")
	}
}

func TestSecondStreamReplacesTheFirst(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	c := serve(t, agents.New(w.opts)).client(id)
	first := hello(t, c)
	beat(t, first, 1)
	second := hello(t, c)
	beat(t, second, 1)
	if _, err := first.Receive(); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("first stream: %v, want aborted", err)
	}
	beat(t, second, 2)
	if !w.is(id, sdk.AgentConnected)(t.Context()) {
		t.Error("the end of the replaced stream disconnected the agent")
	}
}

func TestSilentAgentIsDisconnected(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	w.opts.Silence = 50 * time.Millisecond
	st := hello(t, serve(t, agents.New(w.opts)).client(id))
	if _, err := st.Receive(); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("silent stream: %v, want deadline exceeded", err)
	}
	await(t, "disconnection", w.is(id, sdk.AgentDisconnected))
}

func TestShutdownAndRevocation(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	revoked := make(chan uuid.UUID, 8)
	w.opts.Mesh = &fakeMesh{revoked: revoked}
	s := agents.New(w.opts)
	s.Start()
	c := serve(t, s).client(id)
	st := hello(t, c)
	beat(t, st, 1)
	if err := w.db.InTx(t.Context(), func(q *dbsqlc.Queries) error { return agents.Shutdown(t.Context(), q, b.workspace) }); err != nil {
		t.Fatal(err)
	}
	msg, err := st.Receive()
	if err != nil || msg.GetShutdown() == nil {
		t.Fatalf("got %v, %v, want a shutdown", msg, err)
	}
	w.revoke(b.workspace)
	if _, err := st.Receive(); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("stream of a revoked agent: %v, want permission denied", err)
	}
	if got := <-revoked; got != id {
		t.Errorf("the mesh revoked %s, want %s", got, id)
	}
	again := hello(t, c)
	if _, err := again.Receive(); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("new stream of a revoked agent: %v, want permission denied", err)
	}
}

// What was announced while the listening connection was lost is found out afterwards.
func TestLostRevocationIsFound(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	s := agents.New(w.opts)
	s.Start()
	st := hello(t, serve(t, s).client(id))
	beat(t, st, 1)
	w.exec(`UPDATE workspace_agents SET token_hash = NULL WHERE workspace_id = $1`, b.workspace) // without a notification
	if err := w.pubsub.Publish(t.Context(), "agents_revoked", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Receive(); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("stream: %v, want permission denied", err)
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	w, _, here := running(t)
	gone := uuid.New()
	w.store(w.build(w.workspace(w.other, "dev"), sdk.TransitionStart, sdk.JobSucceeded), true, resource(gone))
	before := agents.New(w.opts)
	sv := serve(t, before)
	for _, id := range []uuid.UUID{here, gone} {
		st := hello(t, sv.client(id))
		beat(t, st, 1)
		defer st.CloseResponse()
	}
	before.Stop()
	for _, id := range []uuid.UUID{here, gone} {
		if !w.is(id, sdk.AgentConnected)(t.Context()) {
			t.Errorf("the end of the server disconnected agent %s", id)
		}
	}
	connected := *w.agent(here).LastConnectedAt

	opts := w.opts
	opts.ReturnGrace = 300 * time.Millisecond
	after := agents.New(opts)
	st := hello(t, serve(t, after).client(here))
	beat(t, st, 1)
	after.Start()
	await(t, "the sweep", w.is(gone, sdk.AgentDisconnected))
	if !w.is(here, sdk.AgentConnected)(t.Context()) {
		t.Error("the sweep disconnected an agent that came back")
	}
	if got := *w.agent(here).LastConnectedAt; !got.Equal(connected) {
		t.Errorf("coming back was written: %v, want %v", got, connected)
	}
	if err := st.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	await(t, "disconnection", w.is(here, sdk.AgentDisconnected))
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	c := serve(t, agents.New(w.opts)).client(id)
	start := time.Now().Add(-time.Minute)
	report := func(state agentpb.LifecycleState, at time.Time) {
		t.Helper()
		if _, err := c.Lifecycle(t.Context(), connect.NewRequest(&agentpb.LifecycleRequest{State: state, ChangedAt: timestamppb.New(at)})); err != nil {
			t.Fatal(err)
		}
	}
	report(agentpb.LifecycleState_LIFECYCLE_STATE_STARTING, start)
	report(agentpb.LifecycleState_LIFECYCLE_STATE_READY, start.Add(2*time.Second))
	report(agentpb.LifecycleState_LIFECYCLE_STATE_STARTING, start.Add(time.Second)) // late
	a := w.agent(id)
	if a.LifecycleState != "ready" || a.StartedAt == nil || a.ReadyAt == nil || a.ReadyAt.Sub(*a.StartedAt) != 2*time.Second {
		t.Errorf("agent: got %s, started %v, ready %v", a.LifecycleState, a.StartedAt, a.ReadyAt)
	}
	// A clock ahead of the server's does not block what comes later.
	report(agentpb.LifecycleState_LIFECYCLE_STATE_SHUTTING_DOWN, time.Now().Add(time.Hour))
	report(agentpb.LifecycleState_LIFECYCLE_STATE_OFF, time.Now().Add(time.Hour))
	if got := w.agent(id).LifecycleState; got != "off" {
		t.Errorf("state: got %s, want off", got)
	}
	_, err := c.Lifecycle(t.Context(), connect.NewRequest(&agentpb.LifecycleRequest{ChangedAt: timestamppb.Now()}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("no state: %v, want invalid argument", err)
	}
}

// Lines without text cost as much as others: a log of them is bounded in rows, says what is left out, and is served page by page.
func TestEmptyLinesAreBounded(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	s := agents.New(w.opts)
	sv := serve(t, s)
	c := sv.client(id)
	m, err := c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	source := m.Msg.GetScripts()[0].GetLogSourceId()
	const lines, batch = 60_000, 20_000
	for seq := uint64(0); seq < lines; {
		req := &agentpb.LogsRequest{LogSourceId: source}
		for range batch {
			seq++
			req.Lines = append(req.Lines, &agentpb.LogLine{Seq: seq})
		}
		got, err := c.Logs(t.Context(), connect.NewRequest(req))
		if err != nil || got.Msg.GetStoredSeq() != seq || !got.Msg.GetLimitExceeded() {
			t.Fatalf("line %d: %v, %v; want it stored and the limit exceeded", seq, got, err)
		}
	}
	var shown []sdk.AgentLog
	if status := get(t, api(t, s, w), w.owner.String(), id.String()+"/logs", &shown); status != 200 {
		t.Fatalf("log answered with %d", status)
	}
	if most := agents.MaxLogs * 5 / 4 / agents.LineOverhead; len(shown) > most || len(shown) < agents.MaxLogs/2/agents.LineOverhead {
		t.Errorf("%d lines are kept, want at most %d", len(shown), most)
	}
	missing := 0
	for _, line := range shown {
		if line.Output != "" {
			if _, err := fmt.Sscanf(line.Output, "[%d lines are left out here", &missing); err != nil {
				t.Errorf("line %q: %v", line.Output, err)
			}
		}
	}
	if missing+len(shown)-1 != lines {
		t.Errorf("%d lines are kept and %d left out, want %d in all", len(shown)-1, missing, lines)
	}
	if a := w.agent(id); !a.LogsOverflowed || a.LogsLength < agents.MaxLogs/2 {
		t.Errorf("agent: overflowed %t with %d bytes", a.LogsOverflowed, a.LogsLength)
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	c := serve(t, agents.New(w.opts)).client(id)
	m, err := c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	source := m.Msg.GetScripts()[0].GetLogSourceId()
	send := func(source []byte, lines ...*agentpb.LogLine) (*agentpb.LogsResponse, error) {
		resp, err := c.Logs(t.Context(), connect.NewRequest(&agentpb.LogsRequest{LogSourceId: source, Lines: lines}))
		if err != nil {
			return nil, err
		}
		return resp.Msg, nil
	}
	line := func(seq uint64, output string) *agentpb.LogLine {
		return &agentpb.LogLine{Seq: seq, At: timestamppb.Now(), Level: agentpb.LogLevel_LOG_LEVEL_WARN, Output: output}
	}
	for range 2 { // the same batch again, as after a lost answer
		got, err := send(source, line(1, "one"), line(2, "two\x00"))
		if err != nil || got.GetStoredSeq() != 2 || got.GetLimitExceeded() {
			t.Fatalf("got %v, %v, want 2 lines stored", got, err)
		}
	}
	if got, err := send(source, line(2, "two"), line(3, "three")); err != nil || got.GetStoredSeq() != 3 {
		t.Fatalf("got %v, %v", got, err)
	}
	var outputs []string
	rows, err := w.db.ListAgentLogsBefore(t.Context(), dbsqlc.ListAgentLogsBeforeParams{AgentID: id, Before: 1 << 62, PageLimit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		outputs = append(outputs, r.Level+" "+r.Output)
	}
	if diff := cmp.Diff([]string{"warn one", "warn two", "warn three"}, outputs); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}

	// A long log keeps its beginning and its end, and says what is missing in its place.
	seq := uint64(3)
	for range 40 {
		var batch []*agentpb.LogLine
		for range 64 {
			seq++
			batch = append(batch, line(seq, fmt.Sprintf("%06d %s", seq, strings.Repeat("ü", 500))))
		}
		got, err := send(source, batch...)
		if err != nil || got.GetStoredSeq() != seq {
			t.Fatalf("line %d: got %v, %v", seq, got, err)
		}
		if want := (seq-3)*(1007+agents.LineOverhead) > agents.MaxLogs/2; got.GetLimitExceeded() != want {
			t.Errorf("line %d: the beginning is full: %t, want %t", seq, got.GetLimitExceeded(), want)
		}
	}
	if rows, err = w.db.ListAgentLogsBefore(t.Context(), dbsqlc.ListAgentLogsBeforeParams{AgentID: id, Before: 1 << 62, PageLimit: 10000}); err != nil {
		t.Fatal(err)
	}
	var size, missing, gaps int
	next := uint64(4)
	for _, r := range rows[3:] {
		size += len(r.Output) + agents.LineOverhead
		if n, err := fmt.Sscanf(r.Output, "[%d lines are left out here", &missing); n == 1 && err == nil {
			gaps++
			next += uint64(missing)
			continue
		}
		if want := fmt.Sprintf("%06d ", next); !strings.HasPrefix(r.Output, want) {
			t.Fatalf("line %.20q, want %s", r.Output, want)
		}
		next++
	}
	if gaps != 1 || next != seq+1 || size > agents.MaxLogs*5/4 || size < agents.MaxLogs*3/4 {
		t.Errorf("%d gaps, %d lines in all, %d bytes kept; want one gap, %d lines", gaps, next-1, size, seq)
	}
	if a := w.agent(id); !a.LogsOverflowed || a.LogsLength > agents.MaxLogs*5/4 || a.LogsLength < agents.MaxLogs*3/4 {
		t.Errorf("agent: overflowed %t with %d bytes", a.LogsOverflowed, a.LogsLength)
	}

	foreign := uuid.New()
	w.store(w.build(w.workspace(w.other, "dev"), sdk.TransitionStart, sdk.JobSucceeded), true, resource(foreign))
	sources, err := w.db.ListLogSourcesOfAgents(t.Context(), []uuid.UUID{foreign})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := send(sources[0].ID[:], line(1, "hi")); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("another agent's log: %v, want permission denied", err)
	}
}

func TestScriptDone(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	foreign := uuid.New()
	w.store(w.build(w.workspace(w.other, "dev"), sdk.TransitionStart, sdk.JobSucceeded), true, resource(foreign, func(*provisionerpb.Agent) {}))
	c := serve(t, agents.New(w.opts)).client(id)
	scripts, err := w.db.ListScriptsOfAgents(t.Context(), []uuid.UUID{id, foreign})
	if err != nil {
		t.Fatal(err)
	}
	for _, sc := range scripts {
		_, err := c.ScriptDone(t.Context(), connect.NewRequest(&agentpb.ScriptDoneRequest{
			ScriptId: sc.ID[:], StartedAt: timestamppb.Now(), EndedAt: timestamppb.Now(), ExitCode: 3, Stage: "start",
		}))
		want := connect.Code(0)
		if sc.AgentID == foreign {
			want = connect.CodePermissionDenied
		}
		if err == nil && want != 0 || err != nil && connect.CodeOf(err) != want {
			t.Errorf("script of agent %s: %v, want code %v", sc.AgentID, err, want)
		}
	}
	if scripts, err = w.db.ListScriptsOfAgents(t.Context(), []uuid.UUID{id}); err != nil || scripts[0].ExitCode == nil || *scripts[0].ExitCode != 3 {
		t.Errorf("script: got %+v, %v, want exit code 3", scripts, err)
	}
}

func TestAppHealth(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	foreign := uuid.New()
	w.store(w.build(w.workspace(w.other, "dev"), sdk.TransitionStart, sdk.JobSucceeded), true, resource(foreign))
	c := serve(t, agents.New(w.opts)).client(id)
	apps, err := w.db.ListAppsOfAgents(t.Context(), []uuid.UUID{id, foreign})
	if err != nil {
		t.Fatal(err)
	}
	req := &agentpb.AppHealthRequest{}
	for _, app := range apps {
		req.Apps = append(req.Apps, &agentpb.AppState{Id: app.ID[:], Health: agentpb.Health_HEALTH_UNHEALTHY})
	}
	if _, err := c.AppHealth(t.Context(), connect.NewRequest(req)); err != nil {
		t.Fatal(err)
	}
	if apps, err = w.db.ListAppsOfAgents(t.Context(), []uuid.UUID{id, foreign}); err != nil {
		t.Fatal(err)
	}
	for _, app := range apps {
		want := "unhealthy"
		if app.AgentID == foreign {
			want = "initializing"
		}
		if app.Health != want {
			t.Errorf("app of agent %s: got %s, want %s", app.AgentID, app.Health, want)
		}
	}
	_, err = c.AppHealth(t.Context(), connect.NewRequest(&agentpb.AppHealthRequest{Apps: []*agentpb.AppState{{Id: []byte("x")}}}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("no id: %v, want invalid argument", err)
	}
	m, err := c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{}))
	if err != nil || len(m.Msg.GetApps()) != 1 || m.Msg.GetApps()[0].GetUrl() != "http://localhost:8080/healthz" {
		t.Errorf("manifest: got %v, %v, want the app's health check", m, err)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	s := agents.New(w.opts)
	u := api(t, s, w)
	c := serve(t, s).client(id)
	w.exec(`UPDATE workspaces SET last_used_at = now() - interval '1 hour' WHERE id = $1`, b.workspace)
	w.exec(`UPDATE workspace_builds SET deadline = now() + interval '10 minutes' WHERE workspace_id = $1`, b.workspace)
	beat(t, hello(t, c), 1)
	if _, err := c.Stats(t.Context(), connect.NewRequest(&agentpb.StatsRequest{Ssh: 2, ReconnectingPty: 1})); err != nil {
		t.Fatal(err)
	}
	var used, later bool
	if err := w.db.Pool.QueryRow(t.Context(), `SELECT w.last_used_at > now() - interval '1 minute', b.deadline > now() + interval '50 minutes'
		FROM workspaces w JOIN workspace_builds b ON b.workspace_id = w.id WHERE w.id = $1`, b.workspace).Scan(&used, &later); err != nil || !used || !later {
		t.Errorf("used: %t, deadline moved: %t, %v", used, later, err)
	}
	var a sdk.WorkspaceAgent
	get(t, u, w.owner.String(), id.String(), &a)
	if diff := cmp.Diff(&sdk.AgentConnections{SSH: 2, ReconnectingPTY: 1}, a.Connections); diff != "" {
		t.Errorf("connections (-want +got):\n%s", diff)
	}
}
