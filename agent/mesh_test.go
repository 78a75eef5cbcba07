//go:build linux

package agent_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent"
	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/sshmux"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/tailnettest"
)

const token = secret.Token("agent-token")

// site holds a coordinator and a relay with real sockets, and the world's server as a node of the mesh.
type site struct {
	*world
	url   *url.URL
	coord *coordinator.Server
	agent coordinator.Principal
}

func newSite(t testing.TB, w *world) *site {
	t.Helper()
	relay := tailnettest.NewRelay(t)
	regions := relay.Map
	regions.Regions[0].URL = relay.URL.String()
	s := &site{world: w, agent: coordinator.Principal{Kind: protocol.KindAgent, ID: uuid.New(), Name: "ann/dev.main"}}
	s.coord = coordinator.New(coordinator.Options{
		Relay: relay, RelayMap: func() tailnet.RelayMap { return regions },
		Authorizer: coordinator.AuthorizerFunc(func(context.Context, coordinator.Principal, coordinator.Target) error { return nil }),
	})
	web := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		hello, err := protocol.ParseHello(r)
		if err == nil && r.Header.Get(sdk.AgentTokenHeader) != token.Reveal() {
			err = fault.New(fault.Unauthenticated, "this token is not known")
		}
		if err == nil {
			err = s.coord.Handle(rw, r, s.agent, hello)
		}
		if err != nil {
			http.Error(rw, err.Error(), fault.CodeOf(err).HTTPStatus())
		}
	}))
	t.Cleanup(func() { s.coord.Close(); web.Close() })
	var err error
	if s.url, err = url.Parse(web.URL); err != nil {
		t.Fatal(err)
	}
	node := s.join(t, coordinator.Principal{Kind: protocol.KindServer, ID: uuid.New(), Name: "server"}, tailnet.NewPrivateKey())
	l, err := node.Listen(meshport.ServerRPC)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = w.http.Serve(l) }()
	t.Cleanup(func() { l.Close(); w.http.Close(); <-served })
	return s
}

// member is a node with its connection to the coordinator.
type member struct {
	*tailnet.Node
	client *client.Client
}

func (s *site) join(t testing.TB, p coordinator.Principal, key tailnet.PrivateKey) member {
	t.Helper()
	node, err := tailnet.New(tailnet.Options{ID: p.ID, Key: key, Logger: tailnettest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	c := client.New(client.Options{
		Dial: s.coord.Dialer(p), Kind: p.Kind, URL: s.url, Key: key.Public(), NewNode: func(protocol.Welcome) (client.Node, error) { return node, nil },
		Inbound: func(kind protocol.Kind) tailnet.Inbound {
			if p.Kind == protocol.KindServer && kind == protocol.KindAgent {
				return tailnet.InboundPorts(meshport.ServerRPC)
			}
			return tailnet.InboundNone
		},
	})
	c.Start()
	t.Cleanup(func() { c.Close() })
	return member{node, c}
}

func TestOverTheMesh(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := newSite(t, w)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Run(ctx, agent.Options{
			Logger: tailnettest.Logger(t), URL: s.url, Token: token, StateDir: filepath.Join(w.dir, "state"), LogDir: w.dir,
		})
	}()
	stop := func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	}
	w.expectStates(t, starting, ready)

	key := tailnet.NewPrivateKey()
	laptop := s.join(t, coordinator.Principal{Kind: protocol.KindClient, ID: tailnet.ClientID(key.Public()), Name: "ann", Subject: uuid.New()}, key)
	if err := laptop.client.Subscribe(t.Context(), s.agent.ID); err != nil {
		t.Fatal(err)
	}
	addr := tailnet.Addr(s.agent.ID)
	conn, err := laptop.Dial(t.Context(), "tcp", netip.AddrPortFrom(addr, meshport.Session))
	if err != nil {
		t.Fatal(err)
	}
	client := sshmux.Client(conn, sshmux.Options{})
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("mesh"), 1<<20)
	session.Stdin = bytes.NewReader(data)
	if out, err := session.Output("cat"); err != nil || !bytes.Equal(out, data) {
		t.Errorf("session over the mesh: %d bytes, %v; want %d", len(out), err, len(data))
	}

	target := listen(t)
	defer target.Close()
	go func() {
		if conn, err := target.Accept(); err == nil {
			_, _ = io.Copy(conn, conn)
			conn.Close()
		}
	}()
	port := uint16(target.Addr().(*net.TCPAddr).Port)
	forward, err := laptop.Dial(t.Context(), "tcp", netip.AddrPortFrom(addr, port))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = forward.Write(data)
		_ = forward.(interface{ CloseWrite() error }).CloseWrite()
	}()
	if out, err := io.ReadAll(forward); err != nil || !bytes.Equal(out, data) {
		t.Errorf("forward over the mesh: %d bytes, %v; want %d", len(out), err, len(data))
	}
	forward.Close()
	client.Close()
	stop()
	w.expectStates(t, starting, ready, shuttingDown, off)
}

// BenchmarkMeshDownload measures one SSH session over a direct WireGuard path, with both ends in this process.
func BenchmarkMeshDownload(b *testing.B) {
	w := newWorld(b)
	s := newSite(b, w)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Run(ctx, agent.Options{URL: s.url, Token: token, StateDir: filepath.Join(w.dir, "state"), LogDir: w.dir})
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}()
	w.expectStates(b, starting, ready)
	key := tailnet.NewPrivateKey()
	laptop := s.join(b, coordinator.Principal{Kind: protocol.KindClient, ID: tailnet.ClientID(key.Public()), Subject: uuid.New()}, key)
	if err := laptop.client.Subscribe(b.Context(), s.agent.ID); err != nil {
		b.Fatal(err)
	}
	conn, err := laptop.Dial(b.Context(), "tcp", netip.AddrPortFrom(tailnet.Addr(s.agent.ID), meshport.Session))
	if err != nil {
		b.Fatal(err)
	}
	client := sshmux.Client(conn, sshmux.Options{Wide: true})
	defer client.Close()
	const bulk = 128 << 20
	b.SetBytes(bulk)
	for b.Loop() {
		session, err := client.NewSession()
		if err != nil {
			b.Fatal(err)
		}
		session.Stdout = io.Discard
		if err := session.Run("head -c 134217728 /dev/zero"); err != nil {
			b.Fatal(err)
		}
	}
}

func TestRefusedToken(t *testing.T) {
	t.Parallel()
	s := newSite(t, newWorld(t))
	err := agent.Run(t.Context(), agent.Options{URL: s.url, Token: "wrong", StateDir: t.TempDir(), LogDir: t.TempDir()})
	if fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("run: %v, want the refusal", err)
	}
}

func TestRevokedAgentEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := newSite(t, w)
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Run(t.Context(), agent.Options{URL: s.url, Token: token, StateDir: t.TempDir(), LogDir: t.TempDir()})
	}()
	w.expectStates(t, starting, ready)
	s.coord.Revoke(s.agent.ID, "the workspace was stopped")
	if err := <-ended; err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("run: %v, want the reason", err)
	}
}

func TestMissingOptions(t *testing.T) {
	t.Parallel()
	if err := agent.Run(t.Context(), agent.Options{}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("run: %v, want what is missing", err)
	}
}
