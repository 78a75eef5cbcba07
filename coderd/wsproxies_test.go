package coderd_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/region"
)

// runningProxy is a region proxy in this process.
type runningProxy struct {
	url    *url.URL
	synced chan struct{}
	ended  chan error // receives the result once

	metrics *prometheus.Registry
	cancel  context.CancelFunc
}

// stop ends the proxy and returns its result.
func (p *runningProxy) stop() error {
	p.cancel()
	return p.result()
}

func (p *runningProxy) result() error {
	err := <-p.ended
	p.ended <- err
	return err
}

// wait returns the result of a proxy that ends without stop.
func (p *runningProxy) wait(t *testing.T) error {
	t.Helper()
	err := testwait.For(t, "the proxy's end", p.ended)
	p.ended <- err
	return err
}

func newStranger(t *testing.T, answer http.HandlerFunc) *url.URL {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func runProxy(t *testing.T, server *url.URL, token string) *runningProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return runProxyAt(t, server, token, &url.URL{Scheme: "http", Host: l.Addr().String()}, l, nil)
}

// runProxyAt runs a proxy with an access URL that may lead to it through a balancer.
func runProxyAt(t *testing.T, server *url.URL, token string, at *url.URL, l net.Listener, log *slog.Logger) *runningProxy {
	t.Helper()
	p := &runningProxy{url: at, synced: make(chan struct{}, 10), metrics: prometheus.NewRegistry()}
	ctx, cancel := context.WithCancel(context.Background())
	p.ended, p.cancel = make(chan error, 1), cancel
	go func() {
		p.ended <- region.Run(ctx, region.Options{
			Server: server, Token: secret.Token(token), URL: p.url, Listener: l, STUNAddress: "127.0.0.1:0", Logger: log,
			Synced: func() { p.synced <- struct{}{} }, Metrics: p.metrics,
		})
	}()
	t.Cleanup(func() { p.stop() })
	return p
}

// regionHealth returns the health of the regions by their names.
func regionHealth(ctx context.Context, t *testing.T, c *sdk.Client) map[string]bool {
	t.Helper()
	list, err := c.Regions(ctx)
	if err != nil {
		t.Fatal(err)
	}
	health := map[string]bool{}
	for _, r := range list.Regions {
		health[r.Name] = r.Healthy
	}
	return health
}

// A proxy that is connected to one server becomes a region at every server, admits the nodes of all of them, and is left when it ends.
func TestRegionProxy(t *testing.T) {
	t.Parallel()
	servers := fleet(t, 2)
	owner, other := servers[0].As("olga"), servers[1].As("olga")
	made, err := owner.CreateWorkspaceProxy(t.Context(), sdk.CreateWorkspaceProxyRequest{Name: "eu", DisplayName: "Frankfurt"})
	if err != nil {
		t.Fatal(err)
	}
	if made.Proxy.Status.Status != sdk.ProxyUnregistered || made.Proxy.Healthy || !made.Proxy.DERPOnly {
		t.Fatalf("created %+v", made.Proxy)
	}
	proxy := runProxy(t, servers[0].URL, made.Token)
	<-proxy.synced
	testwait.Until(t, "the region at the other server", func() error {
		healthy := regionHealth(t.Context(), t, other)
		return testwait.Unless(healthy["eu"], "healthy are %v", healthy)
	})
	got, err := other.WorkspaceProxy(t.Context(), "EU")
	if err != nil || got.URL != proxy.url.String() || got.Status.Status != sdk.ProxyOK || got.DisplayName != "Frankfurt" || got.PathAppURL == "" {
		t.Fatalf("got %+v, %v", got, err)
	}
	for _, s := range servers {
		testwait.Until(t, "the region in the relay map", func() error {
			regions := s.Mesh.RelayMap().Regions
			there := len(regions) == 2 && regions[1].Code == "eu" && regions[1].URL == proxy.url.String() && regions[1].STUNPort != 0 && regions[1].ID >= 10
			return testwait.Unless(there, "the regions are %+v", regions)
		})
		// The node of each server is admitted at the proxy's relay and reaches it.
		testwait.Until(t, "the server's node knows the region", func() error {
			links, _ := s.Mesh.Relays()
			return testwait.Len(links, 2)
		})
	}
	if err := proxy.stop(); err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		testwait.Until(t, "the region leaves the relay map", func() error { return testwait.Len(s.Mesh.RelayMap().Regions, 1) })
	}
	if got, err = owner.WorkspaceProxy(t.Context(), got.ID.String()); err != nil || got.Status.Status != sdk.ProxyUnreachable {
		t.Fatalf("after the proxy's end: %+v, %v", got, err)
	}
}

func TestRegionProxyTokens(t *testing.T) {
	t.Parallel()
	s := coderdtest.Start(t)
	owner := s.As("olga")
	made, err := owner.CreateWorkspaceProxy(t.Context(), sdk.CreateWorkspaceProxyRequest{Name: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	first := runProxy(t, s.URL, made.Token)
	<-first.synced
	again, err := owner.PatchWorkspaceProxy(t.Context(), "eu", sdk.PatchWorkspaceProxyRequest{RegenerateToken: true})
	if err != nil || again.Token == "" || again.Token == made.Token {
		t.Fatalf("token %v, %v", again.Token == made.Token, err)
	}
	// The old token's connection ends, and it cannot connect again.
	if err := first.wait(t); fault.CodeOf(err) != fault.Unauthenticated {
		t.Fatalf("the proxy with the replaced token ended with %v", err)
	}
	second := runProxy(t, s.URL, again.Token)
	<-second.synced
	if err := owner.DeleteWorkspaceProxy(t.Context(), "eu"); err != nil {
		t.Fatal(err)
	}
	if err := second.wait(t); fault.CodeOf(err) != fault.Unauthenticated {
		t.Fatalf("the deleted proxy ended with %v", err)
	}
	testwait.Until(t, "no region", func() error { return testwait.Len(s.Mesh.RelayMap().Regions, 1) })
}

func TestRegionProxyRefusals(t *testing.T) {
	t.Parallel()
	s := coderdtest.Start(t)
	owner, ctx := s.As("olga"), t.Context()
	for name, req := range map[string]sdk.CreateWorkspaceProxyRequest{
		"empty":    {},
		"reserved": {Name: "Primary"},
		"me":       {Name: "me"},
		"slash":    {Name: "a/b"},
		"long":     {Name: strings.Repeat("a", 33)},
		"id":       {Name: "0f9d1a4e-2f3a-4c39-8d63-6f0f3d0f0001"},
		"display":  {Name: "a", DisplayName: strings.Repeat("ä", 65)},
		"icon":     {Name: "a", Icon: strings.Repeat("i", 257)},
	} {
		if _, err := owner.CreateWorkspaceProxy(ctx, req); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := owner.CreateWorkspaceProxy(ctx, sdk.CreateWorkspaceProxyRequest{Name: "eu"}); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.CreateWorkspaceProxy(ctx, sdk.CreateWorkspaceProxyRequest{Name: "EU"}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("same name: %v", err)
	}
	if _, err := owner.PatchWorkspaceProxy(ctx, "us", sdk.PatchWorkspaceProxyRequest{DisplayName: "x"}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("unknown: %v", err)
	}
	// A member sees the regions, and neither the proxies nor their addresses.
	ann := s.As("ann")
	if health := regionHealth(ctx, t, ann); len(health) != 2 || !health["primary"] || health["eu"] {
		t.Errorf("regions of a member: %v", health)
	}
	_, list := ann.WorkspaceProxies(ctx)
	_, get := ann.WorkspaceProxy(ctx, "eu")
	_, create := ann.CreateWorkspaceProxy(ctx, sdk.CreateWorkspaceProxyRequest{Name: "us"})
	_, patch := ann.PatchWorkspaceProxy(ctx, "eu", sdk.PatchWorkspaceProxyRequest{RegenerateToken: true})
	for name, err := range map[string]error{"list": list, "get": get, "create": create, "patch": patch, "delete": ann.DeleteWorkspaceProxy(ctx, "eu")} {
		if code := fault.CodeOf(err); code != fault.Forbidden {
			t.Errorf("a member's %s: %v", name, err)
		}
	}
	if list, err := owner.WorkspaceProxies(ctx); err != nil || len(list.Regions) != 2 || list.Regions[0].Name != "primary" {
		t.Errorf("list: %+v, %v", list, err)
	}
	// Strangers do not get an upgrade.
	for name, token := range map[string]string{"none": "", "unknown": "cmwp_" + secret.Text(43), "session": s.Token("olga")} {
		proxy := runProxy(t, s.URL, token)
		if err := proxy.wait(t); fault.CodeOf(err) != fault.Unauthenticated {
			t.Errorf("token %s: %v", name, err)
		}
	}
}

// value returns the sum of a metric's series.
func (p *runningProxy) value(t *testing.T, name string) (sum float64) {
	t.Helper()
	families, err := p.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
			return sum
		}
	}
	t.Fatalf("the proxy has no metric %s", name)
	return 0
}

// The metrics of a proxy follow its connection to the servers. A proxy that is refused never counts as connected.
func TestRegionProxyMetrics(t *testing.T) {
	t.Parallel()
	s := coderdtest.Start(t)
	owner := s.As("olga")
	made, err := owner.CreateWorkspaceProxy(t.Context(), sdk.CreateWorkspaceProxyRequest{Name: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	proxy := runProxy(t, s.URL, made.Token)
	<-proxy.synced
	if up, n := proxy.value(t, "codermesh_region_connected"), proxy.value(t, "codermesh_region_connections_total"); up != 1 || n != 1 {
		t.Errorf("a connected proxy: connected %v, connections %v", up, n)
	}
	testwait.Until(t, "the key of the server's node", func() error {
		keys := proxy.value(t, "codermesh_region_keys")
		return testwait.Unless(keys >= 1, "the proxy has %v keys", keys)
	})
	// They exist before the first node is connected to the relay.
	proxy.value(t, "codermesh_relay_connections")
	proxy.value(t, "codermesh_relay_bytes_total")
	if err := owner.DeleteWorkspaceProxy(t.Context(), "eu"); err != nil {
		t.Fatal(err)
	}
	if err := proxy.wait(t); fault.CodeOf(err) != fault.Unauthenticated {
		t.Fatalf("the deleted proxy ended with %v", err)
	}
	if up, n := proxy.value(t, "codermesh_region_connected"), proxy.value(t, "codermesh_region_connections_total"); up != 0 || n != 1 {
		t.Errorf("a deleted proxy: connected %v, connections %v", up, n)
	}
	refused := runProxy(t, s.URL, made.Token)
	if err := refused.wait(t); fault.CodeOf(err) != fault.Unauthenticated {
		t.Fatalf("the proxy with the old token ended with %v", err)
	}
	if up, n := refused.value(t, "codermesh_region_connected"), refused.value(t, "codermesh_region_connections_total"); up != 0 || n != 0 {
		t.Errorf("a refused proxy: connected %v, connections %v", up, n)
	}
}

// A proxy's URL must lead to that proxy.
func TestRegionProxyElsewhere(t *testing.T) {
	t.Parallel()
	s := coderdtest.Start(t)
	made, err := s.As("olga").CreateWorkspaceProxy(t.Context(), sdk.CreateWorkspaceProxyRequest{Name: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 100)
	stranger := newStranger(t, func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		w.Write([]byte(strings.Repeat("x", region.CheckLength)))
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- region.Run(ctx, region.Options{Server: s.URL, Token: secret.Token(made.Token), URL: stranger, Listener: l})
	}()
	<-asked
	<-asked // it was refused, and tried again
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if regions := s.Mesh.RelayMap().Regions; len(regions) != 1 {
		t.Fatalf("the relay map has %v", regions)
	}
}

// turns is a balancer of connections: it leads them to the listeners that it was given, in turns.
type turns struct {
	url *url.URL

	mu   sync.Mutex
	to   []net.Listener // guarded by mu
	next int            // guarded by mu
}

func newTurns(t *testing.T, to ...net.Listener) *turns {
	t.Helper()
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &turns{url: &url.URL{Scheme: "http", Host: front.Addr().String()}, to: to}
	var carrying sync.WaitGroup
	carrying.Go(func() {
		for {
			in, err := front.Accept()
			if err != nil {
				return
			}
			carrying.Go(func() {
				defer in.Close()
				out, err := net.Dial("tcp", b.turn())
				if err != nil {
					return
				}
				defer out.Close()
				netio.Pipe(in, out)
			})
		}
	})
	t.Cleanup(func() {
		front.Close()
		carrying.Wait()
	})
	return b
}

func (b *turns) turn() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	return b.to[b.next%len(b.to)].Addr().String()
}

func (b *turns) lead(to ...net.Listener) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.to = to
}

// Two processes of a region behind a balancer: in turns they are refused with the reason. If the balancer leads to one of them, that one serves the
// region, and the other takes over once the balancer leads there. The first one's connection then ends.
func TestRegionOfTwoProcesses(t *testing.T) {
	t.Parallel()
	servers := fleet(t, 2)
	owner := servers[0].As("olga")
	made, err := owner.CreateWorkspaceProxy(t.Context(), sdk.CreateWorkspaceProxyRequest{Name: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	var listeners []net.Listener
	for range servers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
	}
	balancer := newTurns(t, listeners...)
	said := &lines{}
	var proxies []*runningProxy
	for i, s := range servers { // each is connected to another server
		proxies = append(proxies, runProxyAt(t, s.URL, made.Token, balancer.url, listeners[i], slog.New(slog.NewTextHandler(said, nil))))
	}
	testwait.Until(t, "both are refused with the reason", func() error {
		n := strings.Count(said.text(), "one process serves a region")
		return testwait.Unless(n == 2, "%d are: %s", n, said.text())
	})
	if n := len(servers[0].Mesh.RelayMap().Regions); n != 1 {
		t.Errorf("the relay map has %d regions", n)
	}
	for i, p := range proxies {
		balancer.lead(listeners[i])
		<-p.synced
		for _, s := range servers {
			testwait.Until(t, "the region at both servers", func() error {
				regions := s.Mesh.RelayMap().Regions
				return testwait.Unless(len(regions) == 2 && regions[1].URL == balancer.url.String(), "the regions are %+v", regions)
			})
		}
		testwait.Until(t, "only one process is connected", func() error {
			up := proxies[0].value(t, "codermesh_region_connected") + proxies[1].value(t, "codermesh_region_connected")
			return testwait.Unless(up == 1 && p.value(t, "codermesh_region_connected") == 1, "%v are", up)
		})
		testwait.Until(t, "only that one admits nodes", func() error {
			keys := proxies[1-i].value(t, "codermesh_region_keys")
			return testwait.Unless(keys == 0, "the other one has %v keys", keys)
		})
	}
	if err := proxies[1].stop(); err != nil {
		t.Fatal(err)
	}
	balancer.lead(listeners[0])
	<-proxies[0].synced
	testwait.Until(t, "the first one serves the region again", func() error {
		healthy := regionHealth(t.Context(), t, servers[1].As("olga"))
		return testwait.Unless(healthy["eu"], "healthy are %v", healthy)
	})
}

// lines is a log that may be read while it is written.
type lines struct {
	mu   sync.Mutex
	said strings.Builder // guarded by mu
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.String()
}
