package coderd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// gateway leads to one of several servers, like a load balancer. It can be pointed to another one.
type gateway struct {
	net.Listener
	mu     sync.Mutex
	target string
	conns  map[net.Conn]struct{}
	done   sync.WaitGroup
}

func newGateway(t *testing.T, to *member) (*gateway, *url.URL) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{Listener: l, target: to.URL.Host, conns: map[net.Conn]struct{}{}}
	g.done.Go(g.serve)
	t.Cleanup(func() {
		l.Close()
		g.point("")
		g.done.Wait()
	})
	return g, &url.URL{Scheme: "http", Host: l.Addr().String()}
}

func (g *gateway) serve() {
	for {
		in, err := g.Accept()
		if err != nil {
			return
		}
		g.mu.Lock()
		target := g.target
		g.mu.Unlock()
		out, err := net.Dial("tcp", target)
		if err != nil {
			in.Close()
			continue
		}
		g.mu.Lock()
		g.conns[in], g.conns[out] = struct{}{}, struct{}{}
		g.mu.Unlock()
		for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
			g.done.Go(func() {
				io.Copy(pair[0], pair[1])
				in.Close()
				out.Close()
			})
		}
	}
}

// point leads further connections to another server, and cuts those that are open.
func (g *gateway) point(target string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.target = target
	for c := range g.conns {
		c.Close()
	}
	clear(g.conns)
}

// killable is a listener whose connections can be cut for good.
type killable struct {
	net.Listener
	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

func (l *killable) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		dead := l.dead
		l.conns = append(l.conns, conn)
		l.mu.Unlock()
		if !dead {
			return conn, nil
		}
		conn.Close()
	}
}

// member is a server of a fleet.
type member struct {
	*coderdtest.Server
	listener *killable
}

// fleet starts servers on one database, and waits until all are linked.
func fleet(t *testing.T, n int) (servers []*member) {
	t.Helper()
	for i := range n {
		m := &member{}
		m.Server = coderdtest.Start(t, func(o *coderd.Options) {
			if i > 0 {
				o.DB, o.States = servers[0].DB, servers[0].States
			}
			o.SlowDatabase = time.Hour // a busy machine is no finding of these tests
			m.listener = &killable{Listener: o.HTTP}
			o.HTTP = m.listener
		})
		servers = append(servers, m)
	}
	testwait.Until(t, "links between all servers", func() error {
		for _, s := range servers {
			if err := testwait.Len(s.Mesh.Linked(), n-1); err != nil {
				return err
			}
		}
		return nil
	})
	return servers
}

// kill cuts all of a server's connections to other processes, without a goodbye, and keeps it from making others.
func (m *member) kill() {
	m.Replicas.Stop()
	m.Mesh.SetReplicas(nil)
	m.listener.mu.Lock()
	defer m.listener.mu.Unlock()
	m.listener.dead = true
	for _, conn := range m.listener.conns {
		conn.Close()
	}
}

func exchange(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(coderdtest.Patience))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
		t.Fatalf("got %q, %v, want %q", got, err, text)
	}
}

// TestServersShareTheMesh checks that clients, agents and servers reach each other whichever server each is connected to, and that a
// session goes on when one of the servers is killed.
func TestServersShareTheMesh(t *testing.T) {
	servers := fleet(t, 3)
	a, b, c := servers[0], servers[1], servers[2]
	_, id := a.RunningRow("ann", "dev")
	door, at := newGateway(t, a)
	agent := coderdtest.Join(t, at, coderdtest.AsAgent(coderdtest.Token(id).Reveal())).Joined()
	agent.Serve(4000, coderdtest.Echo)

	client := coderdtest.Join(t, b.URL, coderdtest.AsUser(a.Token("ann"))).Joined()
	ctx, cancel := context.WithTimeout(t.Context(), coderdtest.Patience)
	defer cancel()
	if err := client.Client.Subscribe(ctx, id); err != nil {
		t.Fatal(err)
	}
	session, err := client.Dial(id, 4000, coderdtest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	exchange(t, session, "a client at another server")

	app, err := c.Mesh.DialAgent(ctx, id, 4000)
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, app, "a terminal at the third")
	app.Close()

	// Every server lists everyone, with the server that each is connected to.
	testwait.Until(t, "lists of peers", func() error {
		for _, m := range servers {
			list, err := m.As("ann").MeshPeers(ctx)
			if err != nil || list.ServerID != m.Mesh.ID() || len(list.ServerLinks) != 2 || !list.ServerLinks[0].Connected {
				return fmt.Errorf("server %s lists %+v (%w)", m.Mesh.ID(), list, err)
			}
			want := map[uuid.UUID]uuid.UUID{id: a.Mesh.ID(), client.Node.ID(): b.Mesh.ID(), a.Mesh.ID(): a.Mesh.ID(), b.Mesh.ID(): b.Mesh.ID(), c.Mesh.ID(): c.Mesh.ID()}
			for _, p := range list.Peers {
				if want[p.ID] != p.ServerID || p.RelayServerID == nil || *p.RelayServerID != p.ServerID {
					return fmt.Errorf("server %s lists %+v, want it at server %s", m.Mesh.ID(), p, want[p.ID])
				}
				delete(want, p.ID)
			}
			if len(want) > 0 {
				return fmt.Errorf("server %s lists %+v, without %v", m.Mesh.ID(), list.Peers, want)
			}
		}
		return nil
	})

	stranger := coderdtest.Join(t, c.URL, coderdtest.AsUser(a.Token("bob"))).Joined()
	if err := stranger.Client.Subscribe(ctx, id); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("another user's subscription at another server: %v, want not found", err)
	}

	a.kill()
	door.point(b.URL.Host)
	exchange(t, session, "the session goes on")
	testwait.Until(t, "the agent at the second server", func() error { return testwait.Unless(b.Mesh.AgentHere(id), "it is not there") })
	exchange(t, session, "and on")
	again, err := c.Mesh.DialAgent(ctx, id, 4000)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	exchange(t, again, "a new terminal")
}

// TestRevocationReachesEveryServer checks that the end of a session ends what it opened at any server.
func TestRevocationReachesEveryServer(t *testing.T) {
	servers := fleet(t, 2)
	a, b := servers[0], servers[1]
	_, id := a.RunningRow("ann", "dev")
	agent := coderdtest.Join(t, a.URL, coderdtest.AsAgent(coderdtest.Token(id).Reveal())).Joined()
	agent.Serve(4000, coderdtest.Echo)
	token := a.Session("ann")
	client := coderdtest.Join(t, b.URL, coderdtest.AsUser(token.Reveal())).Joined()
	ctx, cancel := context.WithTimeout(t.Context(), coderdtest.Patience)
	defer cancel()
	if err := client.Client.Subscribe(ctx, id); err != nil {
		t.Fatal(err)
	}
	session, err := client.Dial(id, 4000, coderdtest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	exchange(t, session, "before")
	keyID, _, _ := strings.Cut(token.Reveal(), "-")
	a.Exec("DELETE FROM api_keys WHERE id = $1", keyID)
	select {
	case <-client.Client.Done():
	case <-ctx.Done():
		t.Fatal("the client stays at the other server")
	}
	testwait.Until(t, "the agent without the client", func() error {
		peer, _, ok := agent.Client.Peer(client.Node.Info().ID)
		return testwait.Unless(!ok, "the agent still knows %+v", peer)
	})
}

// TestRefusesToRunBeside checks what a server that would harm others reports instead of starting.
func TestRefusesToRunBeside(t *testing.T) {
	servers := fleet(t, 1)
	first := servers[0]
	start := func(states *keyring.Ring) error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		s, err := coderd.New(t.Context(), coderd.Options{
			Logger: first.Log, DB: first.DB, AccessURL: first.URL, HTTP: l, STUNAddress: "off", CacheDir: t.TempDir(), StateDir: t.TempDir(),
			States: states,
		})
		if err == nil {
			err = errors.Join(errors.New("it starts"), s.Stop(t.Context()))
		}
		return err
	}
	if err := start(coderdtest.Keyring(t)); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "state-encryption key") {
		t.Errorf("with another key: %v", err)
	}
	newer := uuid.New()
	first.Exec(`INSERT INTO servers (id, url, version, link_version, min_link_version, state_keys, schema, beat_at)
		SELECT $1, 'http://192.0.2.1:3000', version, 1000, 1000, state_keys, schema, now() + interval '1 day' FROM servers WHERE url <> ''`, newer)
	if err := start(first.States); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "version") {
		t.Errorf("beside a version that does not understand it: %v", err)
	}
	first.Exec("UPDATE servers SET beat_at = now() - interval '1 hour' WHERE id = $1", newer)
	if err := start(first.States); fault.CodeOf(err) == fault.Invalid {
		t.Errorf("after the other server was lost: %v", err)
	}
}

// TestLinksNeedProof checks that only servers of the deployment link to a server, follow its relay, or lend it connections to theirs.
func TestLinksNeedProof(t *testing.T) {
	servers := fleet(t, 1)
	for _, header := range []string{"Coder-Mesh-Link", "Coder-Mesh-Relay", "Coder-Mesh-Relay-Lent"} {
		for name, token := range map[string]string{"none": "", "noise": "a.b", "a user's session": servers[0].Token("olga")} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, servers[0].URL.JoinPath("/api/v2/mesh/link").String(), nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(header, token)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s, %s: %s", header, name, resp.Status)
			}
		}
	}
}
