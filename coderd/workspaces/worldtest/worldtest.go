// Package worldtest gives tests of templates and workspaces a world: real PostgreSQL, the services with their routes, four users
// (ann and bob are members, tom is a template admin, olga an owner), and a provisioner that speaks the real protocol over
// loopback and does what the test tells it.
package worldtest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/coderd/agents"
	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/coderd/database/dbtest"
	"github.com/codermesh/codermesh/coderd/extauth"
	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/coderd/jobs"
	"github.com/codermesh/codermesh/coderd/pubsub"
	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/coderd/seal"
	"github.com/codermesh/codermesh/coderd/states"
	"github.com/codermesh/codermesh/coderd/templates"
	"github.com/codermesh/codermesh/coderd/users"
	"github.com/codermesh/codermesh/coderd/workspaces"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/secret"
	"github.com/codermesh/codermesh/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/provisionerd/provisionerpb/provisionerpbconnect"
)

// World is everything. Clients by user name are in As.
type World struct {
	T          testing.TB
	DB         *database.DB
	PubSub     pubsub.PubSub
	URL        *url.URL
	Mux        *httpapi.Mux
	Org        uuid.UUID
	Users      map[string]uuid.UUID
	Agents     *agents.Service
	Workspaces *workspaces.Service
	States     *states.Keyring
	// ExternalAuth has one provider, "github".
	ExternalAuth *extauth.Service
	Tracer       *Tracer
	Daemon       *Daemon
	// Archive is the content of source archives from now on.
	Archive []byte
	// Evaluate answers what forms look like. Nil: nobody can tell.
	Evaluate func(templates.Question) (templates.Answer, error)

	actors map[string]rbac.Actor
}

// Tracer counts queries.
type Tracer struct {
	mu sync.Mutex
	n  int
}

func (c *Tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return ctx
}

func (c *Tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Count is the number of queries so far.
func (c *Tracer) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// New starts a world that ends with the test.
func New(t testing.TB) *World {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	tracer := &Tracer{}
	cfg := dbtest.New(t).Pool.Config()
	cfg.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	db := &database.DB{Queries: dbsqlc.New(pool), Pool: pool}
	ps := pubsub.NewPostgres(db, log)
	t.Cleanup(func() { ps.Close() })
	w := &World{T: t, DB: db, Tracer: tracer, PubSub: ps, Users: map[string]uuid.UUID{}, actors: map[string]rbac.Actor{}}
	org, err := db.GetDefaultOrganization(t.Context())
	if database.IsNotFound(err) {
		w.Exec(`INSERT INTO organizations (id, name, display_name, is_default) VALUES ($1, 'coder', 'Coder', true)`, uuid.New())
		org, err = db.GetDefaultOrganization(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Org = org.ID
	for name, roles := range map[string][]string{"ann": {}, "bob": {}, "tom": {rbac.RoleTemplateAdmin}, "olga": {rbac.RoleOwner}} {
		id := uuid.New()
		w.Exec(`INSERT INTO users (id, username, email, roles) VALUES ($1, $2, $2 || '@example.com', $3)`, id, name, roles)
		w.Users[name] = id
		w.actors[name] = rbac.Actor{UserID: id, Username: name, Roles: roles}
	}
	queue := jobs.New(jobs.Options{DB: db, PubSub: ps, Logger: log, Beat: time.Hour}) // beats would be counted as queries of requests
	accessURL := "http://127.0.0.1:3000"
	u, err := url.Parse(accessURL)
	if err != nil {
		t.Fatal(err)
	}
	if w.States, err = states.Random(); err != nil {
		t.Fatal(err)
	}
	accounts := users.New(users.Options{DB: db, Logger: log, Keys: w.States, AccessURL: u})
	w.Agents = agents.New(agents.Options{DB: db, PubSub: ps, Logger: log, AccessURL: accessURL})
	sealer, err := seal.Load(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	// A login that nobody can make here: tests link by themselves.
	logins, err := extauth.ParseEnv([]string{
		"CODER_EXTERNAL_AUTH_0_TYPE=github", "CODER_EXTERNAL_AUTH_0_CLIENT_ID=id", "CODER_EXTERNAL_AUTH_0_CLIENT_SECRET=secret", "CODER_EXTERNAL_AUTH_0_VALIDATE_URL=http://127.0.0.1:1",
		"CODER_EXTERNAL_AUTH_0_TOKEN_URL=http://127.0.0.1:1", "CODER_EXTERNAL_AUTH_0_AUTH_URL=http://127.0.0.1:1",
	})
	if err != nil {
		t.Fatal(err)
	}
	w.ExternalAuth = extauth.New(extauth.Options{DB: db, Logger: log, Keys: w.States, Sealer: sealer, AccessURL: u, Providers: logins})
	versions := templates.New(templates.Options{
		ExternalAuth: w.ExternalAuth,
		DB:           db, Jobs: queue, Agents: w.Agents, Logger: log, AccessURL: accessURL,
		Evaluate: func(_ context.Context, q templates.Question) (templates.Answer, error) {
			if w.Evaluate == nil {
				return templates.Answer{Unknown: true}, nil
			}
			return w.Evaluate(q)
		},
	})
	w.Workspaces = workspaces.New(workspaces.Options{DB: db, Jobs: queue, Agents: w.Agents, Users: accounts, PubSub: ps, States: w.States, ExternalAuth: w.ExternalAuth, Logger: log, AccessURL: accessURL})
	if err := queue.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	w.Mux = httpapi.NewMux(httpapi.Options{Logger: log, Authenticate: w.authenticate})
	versions.Routes(w.Mux)
	w.Workspaces.Routes(w.Mux)
	w.Agents.Routes(w.Mux)
	w.ExternalAuth.Routes(w.Mux)
	api := httptest.NewServer(w.Mux)
	if w.URL, err = url.Parse(api.URL); err != nil {
		t.Fatal(err)
	}
	w.Daemon = newDaemon(t, queue)
	t.Cleanup(func() {
		w.Daemon.close()
		w.Workspaces.Stop()
		w.Agents.Stop()
		queue.Stop()
		w.ExternalAuth.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		api.Close()
	})
	return w
}

// authenticate takes a user's name as the session token.
func (w *World) authenticate(r *http.Request) (rbac.Actor, error) {
	token, _ := httpapi.Token(r)
	actor, ok := w.actors[token.Reveal()]
	if !ok {
		return rbac.Actor{}, fault.New(fault.Unauthenticated, "You are not signed in.")
	}
	return actor, nil
}

// As is the API as a user.
func (w *World) As(name string) *sdk.Client {
	c := sdk.New(w.URL, secret.Token(name), sdk.Options{})
	w.T.Cleanup(c.HTTP().CloseIdleConnections)
	return c
}

// Exec runs SQL.
func (w *World) Exec(sql string, args ...any) {
	w.T.Helper()
	if _, err := w.DB.Pool.Exec(w.T.Context(), sql, args...); err != nil {
		w.T.Fatalf("%s: %v", sql, err)
	}
}

// File stores a source archive that a user has uploaded.
func (w *World) File(owner string) uuid.UUID {
	w.T.Helper()
	id := uuid.New()
	w.Exec(`INSERT INTO files (id, sha256, mimetype, data, created_by) VALUES ($1, $2, 'application/x-tar', $4, $3)`, id, id.String(), w.Users[owner], append([]byte{}, w.Archive...))
	return id
}

// Version uploads and imports a version of a template; nil for a new one.
func (w *World) Version(template *uuid.UUID, found *provisionerpb.ImportResult) sdk.TemplateVersion {
	w.T.Helper()
	v, err := w.As("tom").CreateTemplateVersion(w.T.Context(), sdk.DefaultOrganization, sdk.CreateTemplateVersionRequest{
		TemplateID: template, StorageMethod: sdk.StorageFile, FileID: w.File("tom"), Provisioner: sdk.ProvisionerTerraform,
	})
	if err != nil {
		w.T.Fatal(err)
	}
	w.Daemon.Next().Finish(&provisionerpb.Result{Of: &provisionerpb.Result_TemplateImport{TemplateImport: found}})
	v, err = w.As("tom").TemplateVersion(w.T.Context(), v.ID)
	if err != nil || v.Job.Status != sdk.JobSucceeded {
		w.T.Fatalf("import: %s %q, %v", v.Job.Status, v.Job.Error, err)
	}
	return v
}

// Template makes a template with one version.
func (w *World) Template(name string, found *provisionerpb.ImportResult) sdk.Template {
	w.T.Helper()
	v := w.Version(nil, found)
	t, err := w.As("tom").CreateTemplate(w.T.Context(), sdk.DefaultOrganization, sdk.CreateTemplateRequest{Name: name, VersionID: v.ID})
	if err != nil {
		w.T.Fatal(err)
	}
	return t
}

// Workspace makes a workspace whose first build has not run yet.
func (w *World) Workspace(owner, name string, template uuid.UUID, values ...sdk.ParameterValue) sdk.Workspace {
	w.T.Helper()
	ws, err := w.As(owner).CreateWorkspace(w.T.Context(), sdk.Me, sdk.CreateWorkspaceRequest{TemplateID: template, Name: name, RichParameterValues: values})
	if err != nil {
		w.T.Fatal(err)
	}
	return ws
}

// Running makes a workspace and runs its first build, which leaves one agent.
func (w *World) Running(owner, name string, template uuid.UUID) (sdk.Workspace, uuid.UUID) {
	w.T.Helper()
	ws := w.Workspace(owner, name, template)
	agent := uuid.New()
	w.Daemon.Next().Finish(Built("state 1", Resource(agent)))
	return w.Get(ws.ID), agent
}

// Get is a workspace that is not deleted, as an owner of the deployment sees it.
func (w *World) Get(id uuid.UUID) sdk.Workspace {
	w.T.Helper()
	ws, err := w.As("olga").Workspace(w.T.Context(), id)
	if err != nil {
		w.T.Fatal(err)
	}
	return ws
}

// Build makes a build that has not run yet.
func (w *World) Build(owner string, workspace uuid.UUID, transition sdk.Transition, values ...sdk.ParameterValue) sdk.WorkspaceBuild {
	w.T.Helper()
	b, err := w.As(owner).CreateBuild(w.T.Context(), workspace, sdk.CreateBuildRequest{Transition: transition, RichParameterValues: values})
	if err != nil {
		w.T.Fatal(err)
	}
	return b
}

// Token is the token of the agent that Resource makes.
func Token(agent uuid.UUID) secret.Token { return secret.Token("token of " + agent.String()) }

// Resource is one with an agent in it.
func Resource(agent uuid.UUID) *provisionerpb.Resource {
	return &provisionerpb.Resource{Type: "terraform_data", Name: "dev", DailyCost: 2, Agents: []*provisionerpb.Agent{{
		Id: agent[:], Name: "main", Token: Token(agent).Reveal(), Os: "linux", Arch: "amd64", ConnectionTimeoutSeconds: 120,
		Scripts: []*provisionerpb.Script{{DisplayName: "Startup Script", Script: "true", RunOnStart: true}},
		Apps:    []*provisionerpb.App{{Slug: "code", Url: "http://localhost:1"}},
	}}}
}

// Built is the result of a build that succeeded.
func Built(state string, resources ...*provisionerpb.Resource) *provisionerpb.Result {
	return &provisionerpb.Result{Of: &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: &provisionerpb.BuildResult{State: []byte(state), Resources: resources}}}
}

// Await waits until done says so. It is for what another goroutine brings about.
func Await(t testing.TB, what string, done func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: did not come", what)
		case <-tick.C:
		}
	}
}

// Daemon is a provisioner that takes every job and does nothing by itself.
type Daemon struct {
	t      testing.TB
	offers chan *provisionerpb.Offer
	acks   chan *provisionerpb.Ack
	cancel context.CancelFunc
	server *httptest.Server
	reader sync.WaitGroup

	mu     sync.Mutex // guards sends
	stream *connect.BidiStreamForClient[provisionerpb.DaemonMessage, provisionerpb.ServerMessage]
}

func newDaemon(t testing.TB, queue *jobs.Service) *Daemon {
	t.Helper()
	mux := http.NewServeMux()
	id := uuid.New()
	mux.Handle(queue.RPCHandler(func(netip.Addr) (jobs.Daemon, bool) { return jobs.Daemon{ID: id, Name: "test"}, true }))
	hs := httptest.NewUnstartedServer(mux)
	hs.Config.Protocols = new(http.Protocols)
	hs.Config.Protocols.SetUnencryptedHTTP2(true)
	hs.Start()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	d := &Daemon{t: t, offers: make(chan *provisionerpb.Offer, 64), acks: make(chan *provisionerpb.Ack, 64), cancel: cancel, server: hs}
	transport := &http.Transport{Protocols: hs.Config.Protocols}
	d.stream = provisionerpbconnect.NewProvisionerServiceClient(&http.Client{Transport: transport}, hs.URL).Session(ctx)
	d.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Hello{Hello: &provisionerpb.Hello{ProtocolVersion: 2, Version: "test"}}})
	welcomed := make(chan struct{})
	d.reader.Go(func() {
		defer transport.CloseIdleConnections()
		for {
			m, err := d.stream.Receive()
			if err != nil {
				close(d.offers)
				return
			}
			switch m := m.GetMessage().(type) {
			case *provisionerpb.ServerMessage_Welcome: // once a stream
				close(welcomed)
			case *provisionerpb.ServerMessage_Offer:
				d.offers <- m.Offer
			case *provisionerpb.ServerMessage_Ack:
				d.acks <- m.Ack
			}
		}
	})
	d.reader.Go(func() { // silence ends a session
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				d.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Ping{Ping: &provisionerpb.Ping{}}})
			}
		}
	})
	select { // from then on the queue counts with this daemon
	case <-welcomed:
	case <-time.After(30 * time.Second):
		t.Fatal("the test's provisioner was not welcomed")
	}
	return d
}

// send ignores errors: a broken stream shows where something is awaited from it.
func (d *Daemon) send(m *provisionerpb.DaemonMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.stream.Send(m)
}

func (d *Daemon) close() {
	d.cancel()
	d.mu.Lock()
	_ = d.stream.CloseRequest() // while a request's body is open, HTTP/2 does not notice that its context has ended
	d.mu.Unlock()
	d.reader.Wait()
	d.server.Close()
}

// Job is one that the daemon has accepted.
type Job struct {
	*provisionerpb.Offer
	daemon *Daemon
	seq    uint64
}

// Ready says that the daemon would take a job, for jobs that end before it gets them.
func (d *Daemon) Ready() {
	d.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Ready{Ready: &provisionerpb.Ready{Slots: 1}}})
}

// Next takes the next job that there is.
func (d *Daemon) Next() *Job {
	d.t.Helper()
	d.Ready()
	select {
	case offer, ok := <-d.offers:
		if !ok {
			d.t.Fatal("the provisioner's stream has ended")
		}
		d.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Accept{Accept: &provisionerpb.Accept{JobId: offer.GetJobId(), Epoch: offer.GetEpoch()}}})
		return &Job{Offer: offer, daemon: d}
	case <-time.After(30 * time.Second):
		d.t.Fatal("no job was offered")
		return nil
	}
}

// event sends one event and waits until it is applied.
func (j *Job) event(e *provisionerpb.Event) {
	j.daemon.t.Helper()
	j.seq++
	e.JobId, e.Epoch, e.Seq, e.At = j.GetJobId(), j.GetEpoch(), j.seq, timestamppb.Now()
	j.daemon.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Event{Event: e}})
	for {
		select {
		case ack := <-j.daemon.acks:
			if string(ack.GetJobId()) == string(j.GetJobId()) && ack.GetSeq() >= j.seq {
				return
			}
		case <-time.After(30 * time.Second):
			j.daemon.t.Fatalf("event %d was not applied", j.seq)
		}
	}
}

// Checkpoint reports a state.
func (j *Job) Checkpoint(state string) {
	j.daemon.t.Helper()
	j.event(&provisionerpb.Event{Event: &provisionerpb.Event_Checkpoint{Checkpoint: &provisionerpb.Checkpoint{State: []byte(state)}}})
}

// Changes reports what the job has begun or ended to change.
func (j *Job) Changes(changes ...*provisionerpb.Change) {
	j.daemon.t.Helper()
	j.event(&provisionerpb.Event{Event: &provisionerpb.Event_Log{Log: &provisionerpb.LogBatch{Changes: changes}}})
}

// Resources reports what exists before the end.
func (j *Job) Resources(resources ...*provisionerpb.Resource) {
	j.daemon.t.Helper()
	j.event(&provisionerpb.Event{Event: &provisionerpb.Event_Resources{Resources: &provisionerpb.Resources{Resources: resources}}})
}

// Finish ends the job.
func (j *Job) Finish(result *provisionerpb.Result) {
	j.daemon.t.Helper()
	j.event(&provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: result}})
}
