package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// askHost requests a page of a host of the server, as a browser that follows no redirects.
func (d *deployment) askHost(host, token, path string, header http.Header) (*http.Response, string) {
	t := d.t
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host, r.Header = host, header
	if token != "" {
		r.Header.Set("Coder-Session-Token", token)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// TestAppsOverTheMesh opens a port of a workspace through the server, as its owner, as another user and without signing in.
func TestAppsOverTheMesh(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	bob := d.member("bob")
	d.coder("create", "dev", "-t", "process", "-y")
	testwait.Until(t, "the agent is connected", d.agentIs("dev", "connected"))
	agent, _ := d.workspace("dev").firstAgent()
	// The workspace consists of processes on this machine, so a listener here also listens there.
	app := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "app %s cookie=%q token=%q", r.URL.RequestURI(), r.Header.Get("Cookie"), r.Header.Get("Coder-Session-Token"))
	}))
	defer app.Close()
	port := app.Listener.Addr().(*net.TCPAddr).Port
	server, err := url.Parse(d.url())
	if err != nil {
		t.Fatal(err)
	}
	var host struct{ Host string }
	d.get("/api/v2/applications/host", &host)
	if want := "*.localhost:" + server.Port(); host.Host != want {
		t.Fatalf("the host for apps is %q, want %q", host.Host, want)
	}
	ask := func(token, path string, header http.Header) (*http.Response, string) {
		t.Helper()
		return d.askHost(fmt.Sprintf("%d--%s--dev--ada.localhost:%s", port, agent, server.Port()), token, path, header)
	}
	if resp, body := ask(d.token, "/x?y=1", http.Header{"Cookie": {"coder_session_token=" + d.token + "; mine=1"}}); resp.StatusCode != 200 || body != `app /x?y=1 cookie="mine=1" token=""` {
		t.Errorf("the owner: %s %s", resp.Status, body)
	}
	if resp, body := ask(bob, "/x", http.Header{}); resp.StatusCode != http.StatusNotFound {
		t.Errorf("another user: %s %s", resp.Status, body)
	}
	if resp, body := ask("", "/x", http.Header{"Accept": {"text/html"}}); resp.StatusCode != http.StatusSeeOther || !strings.HasPrefix(resp.Header.Get("Location"), d.url()+"/api/v2/applications/auth-redirect?") {
		t.Errorf("not signed in: %s %s to %s", resp.Status, body, resp.Header.Get("Location"))
	}
	app.CloseClientConnections()
	app.Close()
	if resp, body := ask(d.token, "/x", http.Header{}); resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "Nothing listens on port") {
		t.Errorf("nothing there: %s %s", resp.Status, body)
	}
	changed := follow(t, d)
	d.coder("stop", "dev", "-y")
	id := d.workspace("dev").ID
	for event := ""; event != "workspace "+id; {
		var open bool
		select {
		case event, open = <-changed:
			if !open {
				t.Fatal("the stream of events has ended")
			}
		case <-time.After(settle):
			t.Fatal("the page does not say that the workspace has stopped")
		}
	}
	testwait.Until(t, "the app of a stopped workspace says so", func() error {
		resp, body := ask(d.token, "/x", http.Header{})
		return testwait.Unless(resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(body, "is not running"), "%s: %s", resp.Status, body)
	})
	var health struct {
		Healthy  bool
		Sections []struct{ Name, Severity, Message string }
	}
	d.get("/api/v2/debug/health?force=true", &health)
	if !health.Healthy || len(health.Sections) != 7 {
		t.Errorf("health: %+v", health)
	}
}

// firstAgent returns the name and status of the workspace's only agent, "" while there is none.
func (w workspaceJSON) firstAgent() (name, status string) {
	for _, resource := range w.LatestBuild.Resources {
		for _, agent := range resource.Agents {
			return agent.Name, agent.Status
		}
	}
	return "", ""
}

// follow opens the stream of events and returns a channel with "kind id" for each.
func follow(t *testing.T, d *deployment) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url()+"/api/v2/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Coder-Session-Token", d.token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan string, 1024)
	go func() {
		defer close(out)
		kind := ""
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				kind = name
			}
			var data struct{ ID string }
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok && json.Unmarshal([]byte(text), &data) == nil {
				out <- kind + " " + data.ID
			}
		}
	}()
	t.Cleanup(func() { cancel(); resp.Body.Close() })
	if first := <-out; first != "ready " {
		t.Fatalf("the first event is %q", first)
	}
	return out
}

// zonesTemplate has options that depend on another answer.
const zonesTemplate = `
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_parameter" "region" {
  name    = "region"
  default = "eu"
}
data "coder_parameter" "zone" {
  name    = "zone"
  default = "${data.coder_parameter.region.value}-1"
  dynamic "option" {
    for_each = ["1", "2"]
    content {
      name  = "Zone ${option.value}"
      value = "${data.coder_parameter.region.value}-${option.value}"
    }
  }
}
data "coder_parameter" "gpu" {
  count   = data.coder_parameter.region.value == "us" ? 1 : 0
  name    = "gpu"
  type    = "bool"
  default = "false"
}
resource "terraform_data" "zone" {
  input = data.coder_parameter.zone.value
}
`

// TestFormsDependOnAnswers pushes a template whose options depend on another answer, asks for its form, and makes a workspace with
// answers that the import did not try.
func TestFormsDependOnAnswers(t *testing.T) {
	t.Parallel()
	d := startServer(t)
	template := filepath.Join(d.dir, "zones")
	if err := os.Mkdir(template, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(template, "main.tf"), []byte(zonesTemplate), 0o600); err != nil {
		t.Fatal(err)
	}
	d.coder("templates", "push", "zones", "-d", template, "-y")
	var made struct {
		ID      string `json:"id"`
		Version string `json:"active_version_id"`
	}
	d.get("/api/v2/organizations/default/templates/zones", &made)
	type form struct {
		Diagnostics []any
		Parameters  []struct {
			Name    string
			Value   struct{ Value string }
			Options []struct{ Value struct{ Value string } }
		}
	}
	ask := func(inputs map[string]string) string {
		t.Helper()
		var f form
		if err := call("POST", d.url()+"/api/v2/templateversions/"+made.Version+"/dynamic-parameters/evaluate", d.token, map[string]any{"id": 1, "inputs": inputs}, &f); err != nil {
			t.Fatal(err)
		}
		var parts []string
		for _, p := range f.Parameters {
			part := p.Name + "=" + p.Value.Value
			for _, o := range p.Options {
				part += "|" + o.Value.Value
			}
			parts = append(parts, part)
		}
		return fmt.Sprint(parts, f.Diagnostics)
	}
	if got, want := ask(nil), "[region=eu zone=eu-1|eu-1|eu-2] []"; got != want {
		t.Errorf("the first form is %s, want %s", got, want)
	}
	if got, want := ask(map[string]string{"region": "us", "zone": "us-2"}), "[gpu=false region=us zone=us-2|us-1|us-2] []"; got != want {
		t.Errorf("another form is %s, want %s", got, want)
	}
	create := func(name string, values map[string]string) {
		t.Helper()
		var list []map[string]string
		for key, value := range values {
			list = append(list, map[string]string{"name": key, "value": value})
		}
		body := map[string]any{"name": name, "template_id": made.ID, "rich_parameter_values": list}
		if err := call("POST", d.url()+"/api/v2/users/me/workspaces", d.token, body, nil); err != nil {
			t.Fatal(err)
		}
	}
	create("dev", map[string]string{"region": "us", "zone": "us-2", "gpu": "true"})
	create("plain", map[string]string{"region": "us"})
	create("wrong", map[string]string{"region": "us", "zone": "eu-1"})
	for name, want := range map[string]string{"dev": "succeeded", "plain": "succeeded", "wrong": "failed"} {
		testwait.Until(t, name+" is built", d.jobIs(name, "succeeded", "failed"))
		if got := d.workspace(name).LatestBuild.Job; got.Status != want {
			t.Errorf("%s: %s %s, want %s", name, got.Status, got.Error, want)
		}
	}
}
