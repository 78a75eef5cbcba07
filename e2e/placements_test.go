package e2e_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/signin/signintest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestEveryPlacement: with three servers behind a load balancer, users notice no difference, whichever server they, the agent and the
// provisioner are connected to. Half of the walk leads through nginx and half through HAProxy.
func TestEveryPlacement(t *testing.T) {
	t.Parallel()
	b := prepareBalanced(t)
	access, err := url.Parse(b.url())
	if err != nil {
		t.Fatal(err)
	}
	provider := signintest.New(t, access)
	for _, s := range b.servers {
		s.extra = append(s.extra, "CODER_OIDC_ISSUER_URL="+provider.URL, "CODER_OIDC_CLIENT_ID="+signintest.ClientID, "CODER_OIDC_CLIENT_SECRET="+signintest.ClientSecret,
			"CODER_OIDC_SCOPES=openid,profile,email,offline_access")
	}
	b.start("nginx")
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "app at "+r.URL.Path) }))
	t.Cleanup(app.Close)

	b.signIns(provider)
	b.tokens()
	daemon := b.prepareProvisioner("outside", "--verbose")
	at := b.arrives(provisionerJoined, daemon.start)
	b.imports(app.Listener.Addr().(*net.TCPAddr).Port)
	watched := b.watchAll()
	agentAt := b.arrives(agentJoined, func() { b.coder("create", "dev", "-t", "apps", "-y") })
	b.everywhere("the provisioner", provisionerJoined, at, func(int) { agentAt = b.rebuild() })
	watched.see(b)

	b.region, _ = b.runRegion("eu")
	b.reach(app, agentAt)
	b.reach(app, b.arrives(agentJoined, func() { b.balance("haproxy") }))
	b.records()
}

// What a server logs when an agent or a provisioner joins the mesh there.
const (
	agentJoined       = "kind=agent"
	provisionerJoined = "kind=provisioner"
)

// signIns signs a user in with a provider and with a password: the requests of one sign-in go to different servers.
func (b *balanced) signIns(provider *signintest.Provider) {
	b.t.Helper()
	for n := range 3 {
		name := fmt.Sprint("grace", n)
		provider.SignIn(signintest.User{Subject: name, Username: name, Email: name + "@example.com", Name: "Grace", Verified: true})
		if session, page := b.browse("/api/v2/users/oidc/callback"); session == "" {
			b.t.Errorf("%s is not signed in: %s", name, page)
		}
	}
	login := b.typesAs(b.t, "ada", "login", b.url())
	login.await(b.url() + "/cli-auth")
	login.await("Token")
	login.line(b.token)
	login.end()
}

// tokens creates a token at one server, uses it at the others, and removes it at the third: what it opened ends everywhere.
func (b *balanced) tokens() {
	b.t.Helper()
	ctx := b.t.Context()
	for i, s := range b.servers {
		made, err := s.client().CreateToken(ctx, "me", sdk.CreateTokenRequest{TokenName: fmt.Sprint("token", i)})
		if err != nil {
			b.t.Fatal(err)
		}
		uses := *b.servers[(i+1)%3]
		uses.token = made.Key
		if _, err := uses.client().User(ctx, "me"); err != nil {
			b.t.Errorf("a token of server %d at the next one: %v", i, err)
		}
		stream := uses.watch("/api/v2/events", false)
		stream.sees(b.t, "ready")
		id, _, _ := strings.Cut(made.Key, "-")
		if err := b.servers[(i+2)%3].client().DeleteAPIKey(ctx, "me", id); err != nil {
			b.t.Fatal(err)
		}
		stream.ends(b.t)
		b.parallel("a removed token", func(s *deployment, _ int) error {
			if _, err := s.client().WithToken(secret.Token(made.Key)).User(ctx, "me"); fault.CodeOf(err) != fault.Unauthenticated {
				return fmt.Errorf("got %s, want unauthenticated", fmt.Sprint(err))
			}
			return nil
		})
	}
}

// imports pushes the template apps, and imports and plans another one step by step, each step at another server.
func (b *balanced) imports(port int) {
	t, ctx := b.t, b.t.Context()
	t.Helper()
	dir := filepath.Join(b.dir, "process")
	b.coder("templates", "init", "--id", "process", dir)
	main, err := os.ReadFile(filepath.Join(dir, "main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(main), `resource "coder_agent" "main" {`, `resource "coder_agent" "main" {
  startup_script = "echo the script ran"
  metadata {
    key      = "word"
    script   = "echo measured"
    interval = 5
    timeout  = 5
  }`, 1) + fmt.Sprintf(`
resource "coder_app" "web" {
  agent_id = coder_agent.main.id
  slug     = "web"
  url      = "http://127.0.0.1:%d"
  subdomain = false
}
`, port)
	b.push("apps", text)

	clients := []*sdk.Client{b.servers[0].client(), b.servers[1].client(), b.servers[2].client()}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	plain := []byte("data \"coder_workspace\" \"me\" {}\nterraform {\n required_providers {\n  coder = { source = \"coder/coder\" }\n }\n}\nresource \"terraform_data\" \"one\" {}\n")
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "main.tf", Mode: 0o644, Size: int64(len(plain))}), func() error { _, err := w.Write(plain); return err }(), w.Close()); err != nil {
		t.Fatal(err)
	}
	file, err := clients[0].Upload(ctx, sdk.ContentTypeTar, bytes.NewReader(archive.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	version, err := clients[1].CreateTemplateVersion(ctx, "default", sdk.CreateTemplateVersionRequest{
		StorageMethod: sdk.StorageFile, FileID: file, Provisioner: sdk.ProvisionerTerraform,
	})
	if err != nil {
		t.Fatal(err)
	}
	var back bytes.Buffer
	if err := clients[2].Download(ctx, file, "", &back); err != nil || !bytes.Equal(back.Bytes(), archive.Bytes()) {
		t.Errorf("the upload at another server: %v, %d bytes of %d", err, back.Len(), archive.Len())
	}
	b.sameLog("the import", func(c *sdk.Client) (string, error) { return followed(c.FollowTemplateVersionLogs(ctx, version.ID, 0)) })
	job, err := clients[2].CreateDryRun(ctx, version.ID, sdk.CreateDryRunRequest{WorkspaceName: "planned"})
	if err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the plan is at the first server", func() error {
		run, err := clients[0].DryRun(ctx, version.ID, job.ID)
		if err != nil {
			t.Fatal(err)
		}
		return testwait.Unless(run.Status == sdk.JobSucceeded, "%+v", run)
	})
	if resources, err := clients[1].DryRunResources(ctx, version.ID, job.ID); err != nil || len(resources) != 1 {
		t.Errorf("resources of the plan at another server: %v, %v", resources, err)
	}
}

// followed reads a log to its end.
func followed(lines func(yield func(sdk.JobLog, error) bool)) (string, error) {
	var text strings.Builder
	for line, err := range lines {
		if err != nil {
			return text.String(), err
		}
		fmt.Fprintf(&text, "%d %s %s\n", line.ID, line.Stage, line.Output)
	}
	return text.String(), nil
}

// sameLog follows a log at all servers until it ends, and compares what they show.
func (b *balanced) sameLog(what string, read func(*sdk.Client) (string, error)) {
	b.t.Helper()
	texts := make([]string, len(b.servers))
	b.parallel(what, func(s *deployment, i int) (err error) {
		texts[i], err = read(s.client())
		return err
	})
	if texts[0] == "" || texts[1] != texts[0] || texts[2] != texts[0] {
		b.t.Errorf("%s: the servers show %q", what, texts)
	}
}

// rebuild restarts the workspace, follows its build at all servers, and returns the server that its new agent is connected to.
func (b *balanced) rebuild() int {
	b.t.Helper()
	ctx := b.t.Context()
	b.coder("stop", "dev", "-y")
	w, err := b.client().WorkspaceByName(ctx, "me", "dev")
	if err != nil {
		b.t.Fatal(err)
	}
	return b.arrives(agentJoined, func() {
		build, err := b.client().CreateBuild(ctx, w.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStart})
		if err != nil {
			b.t.Fatal(err)
		}
		b.sameLog("the build", func(c *sdk.Client) (string, error) { return followed(c.FollowBuildLogs(ctx, build.ID, 0)) })
		b.parallel("the build", func(s *deployment, _ int) error {
			build, err := s.client().Build(ctx, build.ID)
			if err == nil && build.Status != sdk.WorkspaceRunning {
				err = fmt.Errorf("the build is %s", build.Status)
			}
			return err
		})
	})
}

// watched are streams at all servers.
type watched struct {
	events, inboxes []*feed
}

// watchAll opens the streams of a page at each server.
func (b *balanced) watchAll() *watched {
	b.t.Helper()
	w := &watched{}
	for _, s := range b.servers {
		w.events = append(w.events, s.watch("/api/v2/events", false))
		w.inboxes = append(w.inboxes, s.watch("/api/v2/notifications/inbox/watch", true))
	}
	for _, f := range w.events {
		f.sees(b.t, "ready")
	}
	return w
}

// see checks that the streams show what other servers changed.
func (w *watched) see(b *balanced) {
	t, ctx := b.t, b.t.Context()
	t.Helper()
	workspace, err := b.client().WorkspaceByName(ctx, "me", "dev")
	if err != nil {
		t.Fatal(err)
	}
	agent := workspace.LatestBuild.Resources[0].Agents
	for _, r := range workspace.LatestBuild.Resources {
		agent = append(agent, r.Agents...)
	}
	if len(agent) == 0 {
		t.Fatalf("the workspace has no agent: %+v", workspace.LatestBuild)
	}
	var watches []*feed
	for i, s := range b.servers {
		watches = append(watches, s.watch("/api/v2/workspaces/"+workspace.ID.String()+"/watch", false), s.watch("/api/v2/workspaces/"+workspace.ID.String()+"/watch-ws", true))
		w.events[i].sees(t, workspace.ID.String())
		s.watch("/api/v2/workspaceagents/"+agent[0].ID.String()+"/logs?follow", true).sees(t, "the script ran")
		s.watch("/api/v2/workspaceagents/"+agent[0].ID.String()+"/watch-metadata-ws", true).sees(t, `"value":"measured`)
	}
	for i, s := range b.servers {
		title := fmt.Sprint("note of server ", i)
		if err := s.client().CustomNotification(ctx, sdk.CustomNotificationContent{Title: title, Message: "words"}); err != nil {
			t.Fatal(err)
		}
		for _, f := range w.inboxes {
			f.sees(t, title)
		}
		name := fmt.Sprint("dev", i)
		if err := s.client().UpdateWorkspace(ctx, workspace.ID, sdk.UpdateWorkspaceRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
		for _, f := range watches {
			f.sees(t, `"`+name+`"`)
		}
	}
	if err := b.client().UpdateWorkspace(ctx, workspace.ID, sdk.UpdateWorkspaceRequest{Name: "dev"}); err != nil {
		t.Fatal(err)
	}
}

// reach visits the workspace from every server while its agent, which is at the given server now, is at each of them in turn.
func (b *balanced) reach(app *httptest.Server, at int) {
	t := b.t
	t.Helper()
	workspace := b.workspace("dev")
	agent := uuid.MustParse(workspace.agentID())
	terminal := uuid.New()
	first := b.servers[0].open(agent, terminal)
	first.types("kept=one-shell\r")
	first.ws.CloseNow()
	b.everywhere("the agent", agentJoined, at, func(at int) {
		b.parallel(fmt.Sprintf("agent at server %d", at), func(s *deployment, _ int) error { return s.visit(agent, app) })
		for i, s := range b.servers {
			for where, page := range map[string]*browser{"server": s.open(agent, terminal), "region": b.openAtRegion(s, agent, terminal)} {
				page.types(fmt.Sprintf("echo \"$kept seen %s-%d-%d\"\r", where, at, i))
				page.sees(fmt.Sprintf("one-shell seen %s-%d-%d", where, at, i))
				page.ws.CloseNow()
			}
		}
		b.forwards(app)
	})
}

// openAtRegion opens a terminal at the region, with a token that the given server makes. The region asks other servers about it, as the balancer
// leads it. The token works once: no server accepts it again.
func (b *balanced) openAtRegion(by *deployment, agent, terminal uuid.UUID) *browser {
	b.t.Helper()
	opened, token := by.openAtRegion(b.region, agent, terminal)
	for range b.servers {
		if ws, err := b.dialRegion(b.region, agent, terminal, token); fault.CodeOf(err) != fault.Forbidden {
			b.t.Errorf("a used token: %v, want forbidden", err)
			if err == nil {
				ws.CloseNow()
			}
		}
	}
	return opened
}

// visit uses the workspace through a server in every way that needs its agent.
func (d *deployment) visit(agent uuid.UUID, app *httptest.Server) error {
	for _, args := range [][]string{{"ssh", "dev", "--", "echo here"}, {"--disable-direct-connections", "ssh", "dev", "--", "echo here"}} {
		if out, stderr, err := d.try(args...); err != nil || out != "here\n" {
			return fmt.Errorf("coder %s: %w: %s%s", args, err, out, stderr)
		}
	}
	if out, stderr, err := d.try("ping", "dev", "-n", "1"); err != nil {
		return fmt.Errorf("coder ping: %w: %s%s", err, out, stderr)
	}
	var ports sdk.ListeningPorts
	if err := call(http.MethodGet, d.url()+"/api/v2/workspaceagents/"+agent.String()+"/listening-ports", d.token, nil, &ports); err != nil {
		return err
	}
	port := app.Listener.Addr().(*net.TCPAddr).Port
	access := d.environment("CODER_ACCESS_URL")
	_, accessPort, _ := net.SplitHostPort(access[len("http://"):])
	for _, name := range []string{"web", fmt.Sprint(port)} {
		if err := d.shows("/page", name+"--main--dev--ada.localhost:"+accessPort, "app at /page"); err != nil {
			return err
		}
	}
	var peers sdk.MeshPeersResponse
	if err := call(http.MethodGet, d.url()+"/api/v2/mesh/peers", d.token, nil, &peers); err != nil {
		return err
	}
	servers := 0
	for _, p := range peers.Peers {
		if p.Kind == sdk.PeerServer && p.Connected {
			servers++
		}
		if p.ID == agent && (!p.Connected || p.Path == sdk.PathUnknown) {
			return fmt.Errorf("the mesh page shows the agent as %+v", p)
		}
	}
	if servers != 3 {
		return fmt.Errorf("the mesh page shows %d servers: %+v", servers, peers.Peers)
	}
	return nil
}

// environment returns a variable of the server's process.
func (d *deployment) environment(name string) (value string) {
	for _, kv := range d.env("admin") {
		if text, ok := strings.CutPrefix(kv, name+"="); ok {
			value = text
		}
	}
	return value
}

// shows requests a page of another host from a server.
func (d *deployment) shows(path, host, want string) error {
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.url()+path, nil)
	if err != nil {
		return err
	}
	req.Host = host
	req.Header.Set(sdk.SessionHeader, d.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || string(text) != want {
		return fmt.Errorf("%s of %q: %s, %q, %w", path, host, resp.Status, text, err)
	}
	return nil
}

// browseApp opens an app by its address as a signed-in browser does, which has no session at the app's host or region yet. It is redirected
// there, back to the dashboard's host for a token of the app, and to the app again: each of the servers' answers is of another server.
func (b *balanced) browseApp(address, want string) {
	t := b.t
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	access, err := url.Parse(b.url())
	if err != nil {
		t.Fatal(err)
	}
	jar.SetCookies(access, []*http.Cookie{{Name: "coder_session_token", Value: b.token, Path: "/"}})
	var hosts []string
	browser := &http.Client{Jar: jar, Timeout: settle, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if _, port, err := net.SplitHostPort(addr); err == nil && port == access.Port() {
				addr = access.Host // the hosts of apps, too, are the balancer's
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
	}, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		hosts = append(hosts, r.URL.Hostname())
		return nil
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html")
	resp, err := browser.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || string(text) != want || len(hosts) < 3 {
		t.Errorf("%s in a browser: %s after redirects to %q: %q, %v", address, resp.Status, hosts, text, err)
	}
}

// forwards uses the workspace through the balancer.
func (b *balanced) forwards(app *httptest.Server) {
	t := b.t
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	local := freePort()
	forward := b.command(ctx, "port-forward", "dev", "--tcp", local+":"+fmt.Sprint(app.Listener.Addr().(*net.TCPAddr).Port))
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "port-forward answers", func() error {
		resp, err := (&http.Client{Timeout: settle}).Get("http://127.0.0.1:" + local + "/forwarded")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return testwait.Unless(err == nil && string(text) == "app at /forwarded", "%s: %q (%v)", resp.Status, text, err)
	})
	cancel()
	_ = forward.Wait() // it was killed
	for _, at := range []string{b.url(), b.region} {
		b.browseApp(at+"/@ada/dev.main/apps/web/page", "app at /page")
	}
	if out := b.coder("ssh", "dev", "--", "echo through"); out != "through\n" {
		t.Errorf("ssh: %q", out)
	}
	if out := b.coder("logs", "dev"); !strings.Contains(out, "the script ran") {
		t.Errorf("logs: %q", out)
	}
}

// records waits until all servers show the same log of changes and of connections. Agents report connections a moment after they began.
func (b *balanced) records() {
	ctx := b.t.Context()
	b.t.Helper()
	testwait.Until(b.t, "the servers show the same changes and terminals", func() error {
		var counts [3][2]int
		b.parallel("audit log", func(s *deployment, i int) error {
			changes, err := s.client().AuditLogs(ctx, sdk.LogQuery{Q: "resource_type:workspace", Limit: 100})
			if err != nil {
				return err
			}
			connections, err := s.client().ConnectionLogs(ctx, sdk.LogQuery{Q: "type:reconnecting_pty", Limit: 100})
			counts[i] = [2]int{changes.Count, connections.Count}
			return err
		})
		// The name changed at each server and back.
		same := counts[0][0] >= 5 && counts[0][1] >= 6 && counts[1] == counts[0] && counts[2] == counts[0]
		return testwait.Unless(same, "changes and terminals by server: %v", counts)
	})
}
