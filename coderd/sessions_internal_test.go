package coderd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coordinator"
	"github.com/codermesh/codermesh/internal/meshport"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/secret"
	"github.com/codermesh/codermesh/internal/websock"
	"github.com/codermesh/codermesh/tailnet"
)

// deployment is a server with an owner of the deployment.
type deployment struct {
	*Server
	t     *testing.T
	base  *url.URL
	owner string // a session
}

func newDeployment(t *testing.T) *deployment {
	s, base := newTestServer(t, func(o *Options) { o.WildcardHost = appHosts })
	d := &deployment{Server: s, t: t, base: base}
	d.call("", "POST", "/users/first", sdk.CreateFirstUserRequest{Email: "olga@example.com", Username: "olga", Password: firstPassword}, nil)
	d.owner = d.login("olga", firstPassword)
	return d
}

const firstPassword, nextPassword = "a long password 1", "a long password 2"

func (d *deployment) exec(sql string, args ...any) {
	d.t.Helper()
	if _, err := d.opts.DB.Pool.Exec(context.WithoutCancel(d.t.Context()), sql, args...); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
}

func (d *deployment) call(session, method, path string, body, into any) {
	d.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		d.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.base.String()+"/api/v2"+path, bytes.NewReader(data))
	if err != nil {
		d.t.Fatal(err)
	}
	if session != "" {
		req.Header.Set(sdk.SessionHeader, session)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		d.t.Fatalf("%s %s: %s %s %v", method, path, resp.Status, answer, err)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *deployment) login(name, password string) string {
	d.t.Helper()
	var answer sdk.LoginResponse
	d.call("", "POST", "/users/login", sdk.LoginRequest{Email: name + "@example.com", Password: password}, &answer)
	return answer.SessionToken
}

// person is a member with a running workspace, whose agent has an echo.
type person struct {
	name           string
	id             uuid.UUID
	workspace, job uuid.UUID
	agent          uuid.UUID
}

const echoPort = 8080

func (d *deployment) person(t *testing.T, name string) *person {
	t.Helper()
	p := &person{name: name, workspace: uuid.New(), job: uuid.New(), agent: uuid.New()}
	var user sdk.User
	d.call(d.owner, "POST", "/users", sdk.CreateUserRequest{Email: name + "@example.com", Username: name, Password: firstPassword}, &user)
	p.id = user.ID
	file, template, version, resource, token := uuid.New(), uuid.New(), uuid.New(), uuid.New(), secret.Token("token of "+name)
	var org uuid.UUID
	if err := d.opts.DB.Pool.QueryRow(t.Context(), `SELECT id FROM organizations WHERE is_default`).Scan(&org); err != nil {
		t.Fatal(err)
	}
	imported := uuid.New()
	d.exec(`INSERT INTO files (id, sha256, mimetype, data, created_by) VALUES ($1, $2, 'application/x-tar', '', $3)`, file, name, p.id)
	for id, kind := range map[uuid.UUID]sdk.JobType{imported: sdk.JobTemplateImport, p.job: sdk.JobWorkspaceBuild} {
		status := "succeeded"
		if kind == sdk.JobWorkspaceBuild {
			status = "running" // so that its log goes on
		}
		d.exec(`INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, status, started_at, completed_at)
			VALUES ($1, $2, $3, $4, $5, $6, now(), CASE WHEN $6 = 'succeeded' THEN now() END)`, id, org, p.id, string(kind), file, status)
	}
	d.exec(`INSERT INTO template_versions (id, organization_id, job_id, name, created_by) VALUES ($1, $2, $3, 'v1', $4)`, version, org, imported, p.id)
	d.exec(`INSERT INTO templates (id, organization_id, name, active_version_id, created_by) VALUES ($1, $2, $3, $4, $5)`, template, org, "of-"+name, version, p.id)
	d.exec(`INSERT INTO workspaces (id, organization_id, owner_id, template_id, name) VALUES ($1, $2, $3, $4, 'dev')`, p.workspace, org, p.id, template)
	d.exec(`INSERT INTO workspace_builds (id, workspace_id, build_number, template_version_id, job_id, transition, initiator_id)
		VALUES ($1, $2, 1, $3, $4, 'start', $5)`, uuid.New(), p.workspace, version, p.job, p.id)
	d.exec(`INSERT INTO workspace_resources (id, job_id, transition, type, name) VALUES ($1, $2, 'start', 'terraform_data', 'dev')`, resource, p.job)
	d.exec(`INSERT INTO workspace_agents (id, resource_id, workspace_id, build_number, name, token_hash) VALUES ($1, $2, $3, 1, 'main', $4)`,
		p.agent, resource, p.workspace, token.Hash())
	d.exec(`INSERT INTO workspace_apps (id, agent_id, slug, display_name, sharing_level, url) VALUES ($1, $2, 'code', 'code', 'owner', $3)`,
		uuid.New(), p.agent, fmt.Sprintf("http://localhost:%d/", appPort))

	node, client := joinMesh(t, d.base, coordinator.KindAgent, http.Header{sdk.AgentTokenHeader: {token.Reveal()}}, tailnet.InboundAll)
	if _, err := client.Welcome(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.serveApp(t, node())
	for _, port := range []uint16{echoPort, meshport.Terminal} {
		l, err := node().Listen(port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					if port == echoPort {
						io.Copy(conn, conn)
					} else {
						io.Copy(io.Discard, conn) // a terminal in which nothing happens
					}
				}()
			}
		}()
	}
	return p
}

// joinMesh makes a participant of the mesh. The node is there after the client's first introduction.
func joinMesh(t *testing.T, base *url.URL, kind coordinator.Kind, header http.Header, inbound tailnet.Inbound) (func() *tailnet.Node, *coordinator.Client) {
	key := tailnet.NewPrivateKey()
	var node *tailnet.Node
	client := coordinator.NewClient(coordinator.ClientOptions{
		URL: base, Kind: kind, Key: key.Public(), Inbound: func(coordinator.Kind) tailnet.Inbound { return inbound },
		Header: func(context.Context) (http.Header, error) { return header, nil },
		NewNode: func(w coordinator.Welcome) (coordinator.Node, error) {
			var err error
			node, err = tailnet.New(tailnet.Options{ID: w.ID, Key: key})
			return node, err
		},
	})
	client.Start()
	t.Cleanup(func() {
		client.Close()
		if node != nil {
			node.Close()
		}
	})
	return func() *tailnet.Node { return node }, client
}

// opened is everything that one session opened, by kind. Each channel is closed at the end of that thing.
type opened struct {
	session string
	ends    map[string]chan struct{}
	tunnel  net.Conn
	dial    func(ctx context.Context) error // a new connection through the mesh
	apps    map[string]*visitor             // by kind
}

// open opens one of each kind with a session.
func (d *deployment) open(t *testing.T, p *person, session string) *opened {
	t.Helper()
	o := &opened{session: session, ends: map[string]chan struct{}{}}
	shown := http.Header{sdk.SessionHeader: {session}}
	life, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	agent := "/api/v2/workspaceagents/" + p.agent.String()
	for kind, path := range map[string]string{
		"event stream":    "/api/v2/events",
		"watch":           "/api/v2/workspaces/" + p.workspace.String() + "/watch",
		"metadata stream": agent + "/watch-metadata",
	} {
		req, err := http.NewRequestWithContext(life, "GET", d.base.String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = shown
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %v %+v", kind, err, resp)
		}
		first := bufio.NewReader(resp.Body)
		if _, err := first.ReadString('\n'); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		o.until(t, kind, func() { io.Copy(io.Discard, first) }, func() { resp.Body.Close() })
	}
	for kind, path := range map[string]string{
		"watch by websocket":    "/api/v2/workspaces/" + p.workspace.String() + "/watch-ws",
		"metadata by websocket": agent + "/watch-metadata-ws",
		"agent's log":           agent + "/logs?follow",
		"build's log":           "/api/v2/workspacebuilds/" + d.build(t, p) + "/logs?follow",
		"terminal":              agent + "/pty?reconnect=" + uuid.NewString(),
	} {
		at, err := d.base.Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := websock.Dial(t.Context(), at, websock.DialOptions{Header: shown, ReadLimit: 1 << 20})
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		o.until(t, kind, func() {
			for {
				if _, err := conn.ReadAny(life); err != nil {
					return
				}
			}
		}, func() { conn.CloseNow() })
	}
	node, client := joinMesh(t, d.base, coordinator.KindClient, shown, tailnet.InboundNone)
	if err := client.Subscribe(t.Context(), p.agent); err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return node().Dial(ctx, "tcp", netip.AddrPortFrom(tailnet.Addr(p.agent), echoPort))
	}
	var err error
	if o.tunnel, err = dial(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.dial = func(ctx context.Context) error {
		conn, err := dial(ctx)
		if err == nil {
			conn.Close()
		}
		return err
	}
	o.until(t, "mesh connection", func() { <-client.Done() }, func() { client.Close() })
	o.openApps(t, d, p)
	daemon, err := (&people{t: t, base: d.base}).join(header("rack-"+keyOf(session), sdk.SessionHeader, session, sdk.ProvisionerTagsHeader, "scope=user"))
	if err != nil {
		t.Fatal(err)
	}
	running, leave := context.WithCancel(life)
	o.until(t, "provisioner", func() {
		select {
		case <-daemon.Done():
		case <-running.Done():
		}
	}, leave)
	return o
}

func (d *deployment) build(t *testing.T, p *person) string {
	t.Helper()
	var id uuid.UUID
	if err := d.opts.DB.Pool.QueryRow(t.Context(), `SELECT id FROM workspace_builds WHERE workspace_id = $1`, p.workspace).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id.String()
}

// until notes when read returns.
func (o *opened) until(t *testing.T, kind string, read, end func()) {
	ended := make(chan struct{})
	o.ends[kind] = ended
	go func() { defer close(ended); read() }()
	t.Cleanup(func() { end(); <-ended })
}

// over fails unless everything has ended, also what the agent's end of the tunnel says.
func (o *opened) over(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for kind, ended := range o.ends {
		select {
		case <-ended:
		case <-ctx.Done():
			select {
			case <-ended: // in time, and looked at late
			default:
				t.Errorf("%s outlived its session", kind)
			}
		}
	}
	o.tunnel.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, o.tunnel); isTimeout(err) {
		t.Errorf("the tunnel outlived its session")
	}
	for kind, v := range o.apps {
		if v.reaches(t) {
			t.Errorf("%s: a new request after the end of its session reached the app", kind)
		}
	}
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}

// stands fails unless everything goes on.
func (o *opened) stands(t *testing.T) {
	t.Helper()
	for kind, ended := range o.ends {
		select {
		case <-ended:
			t.Errorf("%s of another session was cut", kind)
		default:
		}
	}
	o.tunnel.SetDeadline(time.Now().Add(patience))
	if _, err := o.tunnel.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(o.tunnel, make([]byte, 5)); err != nil {
		t.Errorf("the other session's tunnel: %v", err)
	}
	if err := o.dial(t.Context()); err != nil {
		t.Errorf("a new connection of the other session: %v", err)
	}
	for kind, v := range o.apps {
		if !v.reaches(t) {
			t.Errorf("%s: a new request of the other session did not reach the app", kind)
		}
	}
}

// keyOf is the id of a session's token.
func keyOf(session string) string {
	id, _, _ := strings.Cut(session, "-")
	return id
}

// TestWhatASessionOpenedEndsWithIt: each kind of thing that a session opens, and each way in which a session ends. Another session
// of the same user goes on, where it does not end as well.
func TestWhatASessionOpenedEndsWithIt(t *testing.T) {
	d := newDeployment(t)
	for name, c := range map[string]struct {
		end   func(p *person, victim, other string)
		alone bool // the other session goes on
	}{
		"log-out": {func(_ *person, victim, _ string) { d.call(victim, "POST", "/users/logout", nil, nil) }, true},
		"deleted key": {func(_ *person, victim, other string) {
			d.call(other, "DELETE", "/users/me/keys/"+keyOf(victim), nil, nil)
		}, true},
		"deleted by hand": {func(_ *person, victim, _ string) { d.exec(`DELETE FROM api_keys WHERE id = $1`, keyOf(victim)) }, true},
		"expired": {func(_ *person, victim, _ string) {
			d.exec(`UPDATE api_keys SET expires_at = now() + interval '1 second' WHERE id = $1`, keyOf(victim))
		}, true},
		"new password": {func(_ *person, _, other string) {
			d.call(other, "PUT", "/users/me/password", sdk.UpdateUserPasswordRequest{OldPassword: firstPassword, Password: nextPassword}, nil)
		}, true},
		"suspended": {func(p *person, _, _ string) { d.call(d.owner, "PUT", "/users/"+p.name+"/status/suspend", nil, nil) }, false},
		"deleted user": {func(p *person, _, _ string) {
			d.exec(`UPDATE users SET deleted_at = now(), username = username || '-gone' WHERE id = $1`, p.id)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := d.person(t, strings.ReplaceAll(name, " ", "-"))
			victim, other := d.login(p.name, firstPassword), d.login(p.name, firstPassword)
			cut, kept := d.open(t, p, victim), d.open(t, p, other)
			c.end(p, victim, other)
			cut.over(t)
			if c.alone {
				kept.stands(t)
			} else {
				kept.over(t)
			}
		})
	}
	http.DefaultClient.CloseIdleConnections()
}
