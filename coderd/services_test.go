package coderd_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
)

// service is one of a server's parts that live: start is nil for one that lives from New on.
type service struct {
	field string // of coderd.Services
	start func(context.Context) error
	stop  func() error
}

// living returns the services that live, in the order in which a server stops them.
func living(s *coderd.Server) []service {
	quiet := func(start func()) func(context.Context) error {
		return func(context.Context) error { start(); return nil }
	}
	sure := func(stop func()) func() error {
		return func() error { stop(); return nil }
	}
	return []service{
		{"Regions", func(ctx context.Context) error { s.Regions.Start(ctx); return nil }, sure(s.Regions.Stop)},
		{"Replicas", s.Replicas.Start, sure(s.Replicas.Stop)},
		{"Events", nil, sure(s.Events.Stop)},
		{"Apps", nil, sure(s.Apps.Stop)},
		{"SSHGateway", nil, sure(s.SSHGateway.Stop)},
		{"WireGuard", func(ctx context.Context) error { return s.WireGuard.Start(ctx, 0) }, sure(s.WireGuard.Stop)},
		{"Agents", quiet(s.Agents.Start), sure(s.Agents.Stop)},
		{"Workspaces", quiet(s.Workspaces.Start), sure(s.Workspaces.Stop)},
		{"Retention", quiet(s.Retention.Start), sure(s.Retention.Stop)},
		{"Notifications", quiet(s.Notifications.Start), sure(s.Notifications.Stop)},
		{"Webhooks", quiet(s.Webhooks.Start), sure(s.Webhooks.Stop)},
		{"Jobs", s.Jobs.Start, sure(s.Jobs.Stop)},
		{"Mesh", func(context.Context) error { return s.Mesh.Start(http.NotFoundHandler()) }, s.Mesh.Close},
		{"SignIn", quiet(s.SignIn.Start), sure(s.SignIn.Stop)},
		{"ExternalAuth", nil, sure(s.ExternalAuth.Close)},
		{"PubSub", nil, sure(s.PubSub.Close)},
	}
}

// unstarted returns a server that New has made, on the database of another one that serves no more.
func unstarted(t *testing.T) *coderd.Server {
	t.Helper()
	db := coderdtest.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s, err := coderd.New(t.Context(), coderd.Options{
		Logger: db.Log, DB: db.DB, AccessURL: &url.URL{Scheme: "http", Host: l.Addr().String()}, HTTP: l, STUNAddress: "off",
		CacheDir: t.TempDir(), StateDir: t.TempDir(), States: db.States,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestServicesAreListed checks that Start and Stop know every service that has something to start and to stop: a service that is forgotten in one
// of their lists fails here.
func TestServicesAreListed(t *testing.T) {
	t.Parallel()
	var sources []byte
	for _, name := range []string{"lifecycle.go", "wireguard.go"} { // Start and Stop, and what Start calls for the gateway
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, source...)
	}
	known := living(&coderd.Server{})
	for field := range reflect.TypeFor[coderd.Services]().Fields() {
		has := func(method string) bool { _, ok := field.Type.MethodByName(method); return ok }
		at := slices.IndexFunc(known, func(s service) bool { return s.field == field.Name })
		if (has("Stop") || has("Close")) != (at >= 0) {
			t.Errorf("%s: add it to the services of this test, or take it out", field.Name)
			continue
		}
		for _, method := range []string{"Start", "Stop", "Close"} {
			if has(method) && !bytes.Contains(sources, []byte("s."+field.Name+"."+method+"(")) {
				t.Errorf("%s: the server does not call its %s", field.Name, method)
			}
		}
		if has("Start") && known[at].start == nil {
			t.Errorf("%s: this test does not start it", field.Name)
		}
	}
}

// TestServicesStop checks each service on its own: Stop works before Start, after it, several times at once and again, and leaves nothing running;
// so does a Start whose context has ended. It is not parallel, so that what runs afterwards is the service's.
func TestServicesStop(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, start := range map[string]context.Context{"not started": nil, "started": context.Background(), "started when it was to end": ended} {
		t.Run(name, func(t *testing.T) {
			s := unstarted(t)
			defer func() {
				if err := s.Stop(context.Background()); err != nil {
					t.Errorf("stop the server: %v", err)
				}
			}()
			for _, service := range living(s) {
				running := goleak.IgnoreCurrent()
				if start != nil && service.start != nil {
					if err := service.start(start); err != nil && !errors.Is(err, start.Err()) {
						t.Errorf("start %s: %v", service.field, err)
					}
				}
				var stopping sync.WaitGroup
				for range 3 {
					stopping.Go(func() {
						if err := service.stop(); err != nil {
							t.Errorf("stop %s: %v", service.field, err)
						}
					})
				}
				stopping.Wait()
				if err := service.stop(); err != nil {
					t.Errorf("stop %s again: %v", service.field, err)
				}
				if err := goleak.Find(running); err != nil {
					t.Errorf("%s has stopped: %v", service.field, err)
				}
			}
		})
	}
}

// refusing refuses metrics, except those of routes.
type refusing struct{ prometheus.Registerer }

func (refusing) Register(prometheus.Collector) error { return errors.New("refused") }

// TestFailedNewLeavesNothing checks that a New that fails at its last step stops what it has made.
func TestFailedNewLeavesNothing(t *testing.T) {
	db := coderdtest.New(t)
	running := goleak.IgnoreCurrent()
	_, err := coderd.New(t.Context(), coderd.Options{
		Logger: db.Log, DB: db.DB, AccessURL: db.URL, STUNAddress: "off", CacheDir: t.TempDir(), StateDir: t.TempDir(), States: db.States,
		Metrics: refusing{prometheus.NewRegistry()},
	})
	if err == nil {
		t.Fatal("a server starts without the metrics that it was to have")
	}
	if err := goleak.Find(running); err != nil {
		t.Errorf("New failed: %v", err)
	}
}
