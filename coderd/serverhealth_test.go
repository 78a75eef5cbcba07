package coderd_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/health"
	"github.com/codermesh/codermesh/v2/coderd/mesh"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// report returns a new report of a server, its section on servers, and what it says about each server.
func (m *member) report(t *testing.T) (section sdk.HealthSection, servers map[uuid.UUID]sdk.ServerHealth) {
	t.Helper()
	report := m.Health.Report(t.Context(), true)
	servers = map[uuid.UUID]sdk.ServerHealth{}
	for _, s := range report.Servers {
		servers[s.ID] = s
	}
	i := slices.IndexFunc(report.Sections, func(s sdk.HealthSection) bool { return s.Name == "servers" })
	if i < 0 {
		t.Fatalf("no section on servers in %+v", report)
	}
	return report.Sections[i], servers
}

// awaitReport returns the first report that fits.
func (m *member) awaitReport(t *testing.T, what string, fits func(sdk.HealthSection, map[uuid.UUID]sdk.ServerHealth) bool) (section sdk.HealthSection, servers map[uuid.UUID]sdk.ServerHealth) {
	t.Helper()
	testwait.Until(t, what, func() error {
		section, servers = m.report(t)
		return testwait.Unless(fits(section, servers), "the section is %+v, the servers are %+v", section, servers)
	})
	return section, servers
}

// codes returns the codes of all findings about servers.
func codes(servers map[uuid.UUID]sdk.ServerHealth) (all []string) {
	for _, s := range servers {
		for _, f := range s.Findings {
			all = append(all, f.Code)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// id returns the id of a server.
func (m *member) id() uuid.UUID { return m.Mesh.ID() }

// page returns the URL of a web server that is not ours.
func page(t *testing.T, start func(*httptest.Server)) *url.URL {
	t.Helper()
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `"It works!"`) }))
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	start(web)
	t.Cleanup(web.Close)
	u, err := url.Parse(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// setReplicas makes a server link to exactly these servers, whatever the database says.
func (m *member) setReplicas(others ...*member) {
	m.Replicas.Stop()
	var list []mesh.Replica
	for _, o := range others {
		list = append(list, mesh.Replica{ID: o.id(), URL: o.URL})
	}
	m.Mesh.SetReplicas(list)
}

// TestHealthOfServers checks what owners learn about three servers, and about links that are missing.
func TestHealthOfServers(t *testing.T) {
	servers := fleet(t, 3)
	a, b, c := servers[0], servers[1], servers[2]
	a.Exec("UPDATE servers SET started_at = now() - interval '1 minute'")
	section, all := a.awaitReport(t, "a report without findings", func(section sdk.HealthSection, all map[uuid.UUID]sdk.ServerHealth) bool {
		for _, s := range all {
			if slices.ContainsFunc(s.Links, func(l sdk.ServerLink) bool { return l.MessagesReceived == 0 }) { // the first one is under way
				return false
			}
		}
		return section.Severity == sdk.HealthOK && len(all) == 3
	})
	if section.Message != "3 servers run, and all are linked." {
		t.Errorf("section %+v", section)
	}
	for _, m := range servers {
		s := all[m.id()]
		if s.Reporter != (m == a) || !s.Answered || s.ReplicaURL != m.URL.String() || s.Version == "" || s.StartedAt.IsZero() || s.LastSeen.IsZero() || s.DatabaseLatencyMillis <= 0 || len(s.Links) != 2 {
			t.Errorf("server %+v", s)
		}
		for _, l := range s.Links {
			if !l.Connected || l.Since == nil || l.MessagesSent == 0 || !l.RelayConnected {
				t.Errorf("link of %s: %+v", s.Name, l)
			}
		}
	}

	b.setReplicas(a)
	c.setReplicas(a)
	section, all = a.awaitReport(t, "the missing links between the other two", func(_ sdk.HealthSection, all map[uuid.UUID]sdk.ServerHealth) bool {
		return len(all[b.id()].Findings) >= 2 && len(all[c.id()].Findings) >= 2
	})
	if section.Code != health.CodeServerLink && section.Code != health.CodeServerRelay || section.Severity != sdk.HealthError || section.Remedy == "" {
		t.Errorf("section %+v", section)
	}
	if f := all[a.id()].Findings; len(f) != 0 {
		t.Errorf("findings about the server with all links: %+v", f)
	}
	for _, m := range []*member{b, c} {
		other := map[*member]*member{b: c, c: b}[m]
		if f := all[m.id()].Findings; len(f) != 2 || !strings.Contains(f[0].Message, all[other.id()].Name) || f[0].Remedy == "" {
			t.Errorf("findings about %s: %+v", all[m.id()].Name, f)
		}
	}
}

// TestUnreachableServer checks the findings about servers whose replica URL is wrong, or which stopped without a goodbye.
func TestUnreachableServer(t *testing.T) {
	servers := fleet(t, 2)
	a, b := servers[0], servers[1]
	gate, at := newGateway(t, b)
	a.Exec("UPDATE servers SET started_at = now() - interval '2 hours', url = $1 WHERE id = $2", at.String(), b.id())
	testwait.Until(t, "links through the gateway", func() error {
		section, _ := a.report(t)
		return testwait.Unless(section.Severity == sdk.HealthOK, "%+v", section)
	})
	plain, untrusted := page(t, (*httptest.Server).Start), page(t, (*httptest.Server).StartTLS)
	for name, c := range map[string]struct {
		spoil func()
		code  string
	}{
		"nothing listens":  {func() { gate.point("127.0.0.1:1") }, health.CodeServerUnreachable},
		"another server":   {func() { gate.point(a.URL.Host) }, health.CodeServerOther},
		"it answers again": {func() { gate.point(b.URL.Host) }, ""},
		"another version":  {func() { a.Exec("UPDATE servers SET version = 'v0', started_at = now() - interval '2 hours'") }, health.CodeServerVersion},
		"a recent upgrade": {func() { a.Exec("UPDATE servers SET version = 'v0', started_at = now() - interval '1 minute'") }, ""},
		"a killed server": {func() {
			a.Exec("INSERT INTO servers (id, url, version, link_version, min_link_version, beat_at) VALUES ($1, 'http://192.0.2.1:3000', 'v0', 1, 1, now() - interval '1 minute')", uuid.New())
		}, health.CodeServerSilent},
		"a bad certificate":   {func() { a.Exec("UPDATE servers SET url = $1 WHERE id = $2", untrusted.String(), b.id()) }, health.CodeServerCertificate},
		"no URL of the web":   {func() { a.Exec("UPDATE servers SET url = 'nonsense' WHERE id = $1", b.id()) }, health.CodeServerUnreachable},
		"a page of some sort": {func() { a.Exec("UPDATE servers SET url = $1 WHERE id = $2", plain.String(), b.id()) }, health.CodeServerUnreachable},
	} {
		t.Log(name)
		a.Exec("DELETE FROM servers WHERE beat_at < now() - interval '50 seconds'")
		a.Exec("UPDATE servers SET version = $1, started_at = now() - interval '2 hours'", buildinfo.Version())
		a.Exec("UPDATE servers SET url = $1 WHERE id = $2", at.String(), b.id())
		gate.point(b.URL.Host)
		c.spoil()
		testwait.Until(t, name, func() error {
			section, all := a.report(t)
			if c.code == "" {
				return testwait.Unless(section.Severity == sdk.HealthOK, "%+v", section)
			}
			return testwait.Unless(slices.Contains(codes(all), c.code), "the findings are %q, want %q", codes(all), c.code)
		})
	}
}

// TestWhoMayListServers checks the route by which other programs list servers, and that only servers may ask a server about itself.
func TestWhoMayListServers(t *testing.T) {
	servers := fleet(t, 2)
	a := servers[0]
	list, err := a.As("olga").Replicas(t.Context())
	if err != nil || len(list) != 2 || list[0].RelayAddress != a.URL.String() || list[0].Hostname != "127.0.0.1" || list[0].CreatedAt.IsZero() || list[0].RegionID == 0 {
		t.Errorf("the owner sees %+v, %v", list, err)
	}
	for _, user := range []string{"ann", "tom"} {
		if _, err := a.As(user).Replicas(t.Context()); fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("%s: %v, want forbidden", user, err)
		}
	}
	defer http.DefaultClient.CloseIdleConnections()
	for _, token := range []string{"", "a.b", a.Token("olga")} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.URL.JoinPath("/api/v2/debug/server").String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Coder-Server-Question", token)
		r.Header.Set(sdk.SessionHeader, a.Token("olga"))
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("a question with %q is answered with %s", token, resp.Status)
		}
	}
}

// TestEitherServerDials checks that two servers are linked, and that their relays forward packets in both directions, if only one of them,
// whichever it is, reaches the other.
func TestEitherServerDials(t *testing.T) {
	servers := fleet(t, 2)
	nowhere := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	_, id := servers[0].RunningRow("ann", "dev")
	for i, blind := range servers {
		other := servers[1-i]
		for _, m := range servers {
			m.setReplicas()
		}
		for _, m := range servers {
			testwait.Until(t, "no links", func() error { return testwait.Len(m.Mesh.Linked(), 0) })
		}
		blind.Mesh.SetReplicas([]mesh.Replica{{ID: other.id(), URL: nowhere}})
		testwait.Until(t, "the failed dials", func() error {
			links := blind.Mesh.ServerLinks()
			return testwait.Unless(len(links) == 1 && links[0].Error != "" && links[0].RelayError != "", "links %+v", links)
		})
		if !blind.Mesh.Unlinked(other.id()) || !other.Mesh.Unlinked(blind.id()) || other.Mesh.Unlinked(other.id()) {
			t.Error("another server is unlinked without a link, whether it is known or not")
		}
		other.Mesh.SetReplicas([]mesh.Replica{{ID: blind.id(), URL: blind.URL}})
		for _, m := range servers {
			testwait.Until(t, "the link", func() error { return testwait.Len(m.Mesh.Linked(), 1) })
			testwait.Until(t, "the other's relay", func() error {
				links := m.Mesh.ServerLinks()
				return testwait.Unless(len(links) == 1 && links[0].RelayConnected, "links %+v", links)
			})
		}
		if blind.Mesh.Unlinked(other.id()) {
			t.Error("a linked server is unlinked")
		}
		relayed := func(m *member, as coderdtest.Joining) *coderdtest.Member {
			as.RelayOnly = true
			return m.Join(as)
		}
		agent := relayed(other, coderdtest.AsAgent(coderdtest.Token(id).Reveal()))
		agent.Serve(4000, coderdtest.Echo)
		client := relayed(blind, coderdtest.AsUser(blind.Token("ann")))
		ctx, cancel := context.WithTimeout(t.Context(), coderdtest.Patience)
		defer cancel()
		if err := client.Client.Subscribe(ctx, id); err != nil {
			t.Fatal(err)
		}
		session, err := client.Dial(id, 4000, coderdtest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, session, strings.Repeat("relayed ", 100_000)) // more than one message between servers has
		if err := errors.Join(session.Close(), client.Client.Close(), agent.Client.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestNewServerNamesUnreachableServer checks that a server that has not learned of another one yet tells who waits for an agent that it has no
// link to the agent's server.
func TestNewServerNamesUnreachableServer(t *testing.T) {
	m := fleet(t, 1)[0]
	m.Replicas.Stop()
	_, id := m.RunningRow("ann", "dev")
	other := uuid.New()
	m.Exec(`INSERT INTO servers (id, url, version, link_version, min_link_version, schema, beat_at)
		SELECT $1, 'http://127.0.0.1:1', version, link_version, min_link_version, schema, now() + interval '1 day' FROM servers WHERE id = $2`, other, m.id())
	for _, c := range []struct {
		at           uuid.UUID
		disconnected string
		want         sdk.AgentConnection
	}{
		{other, "NULL", sdk.AgentConnection{Server: m.id(), UnreachableServer: other}},
		{other, "now()", sdk.AgentConnection{}},
		{m.id(), "NULL", sdk.AgentConnection{}},
	} {
		m.Exec("UPDATE workspace_agents SET server_id = $2, last_connected_at = now(), disconnected_at = "+c.disconnected+" WHERE id = $1", id, c.at)
		got, err := m.As("ann").AgentConnection(t.Context(), id)
		if got.HostnameSuffix = ""; err != nil || got != c.want {
			t.Errorf("of an agent at server %s, disconnected at %s: %+v, %v; want %+v", c.at, c.disconnected, got, err, c.want)
		}
	}
}

// TestCutOffServer checks that load balancers avoid a server that reaches no other while others are linked, and use it again when these are
// gone.
func TestCutOffServer(t *testing.T) {
	t.Parallel()
	defer http.DefaultClient.CloseIdleConnections()
	m := coderdtest.Start(t)
	status := func() int {
		r, err := http.Get(m.URL.JoinPath("healthz").String())
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return r.StatusCode
	}
	if got := status(); got != http.StatusOK {
		t.Fatalf("the health of a lone server is %d", got)
	}
	for range 2 { // linked to each other, at addresses that this server cannot reach
		m.Exec(`INSERT INTO servers (id, url, version, link_version, min_link_version, schema, links, started_at)
			SELECT $1, 'http://127.0.0.1:1', version, link_version, min_link_version, schema, 1, started_at - interval '1 minute'
			FROM servers WHERE id = $2`, uuid.New(), m.Mesh.ID())
	}
	testwait.Until(t, "503 of the server without links", func() error {
		m.Exec("UPDATE servers SET beat_at = now() WHERE url = 'http://127.0.0.1:1'")
		got := status()
		return testwait.Unless(got == http.StatusServiceUnavailable, "its health is %d", got)
	})
	m.Exec("DELETE FROM servers WHERE url = 'http://127.0.0.1:1'")
	testwait.Until(t, "200 of the server that is left", func() error {
		got := status()
		return testwait.Unless(got == http.StatusOK, "its health is %d", got)
	})
}
