package coderd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testport"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestDashboardsOfCoder has a real Prometheus scrape a server that has run builds, and asks it what dashboards for
// Coder ask.
func TestDashboardsOfCoder(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed")
	}
	registry := prometheus.NewPedanticRegistry()
	s := coderdtest.New(t, func(o *coderd.Options) { o.Metrics = registry })
	scraped := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(scraped.Close)
	queries := startPrometheus(t, program, strings.TrimPrefix(scraped.URL, "http://"))

	template := s.Template("process", &provisionerpb.ImportResult{Presets: []*provisionerpb.Preset{{Name: "big", Prebuilds: &provisionerpb.Prebuilds{Instances: 1}}}})
	presets, err := s.As("tom").TemplateVersionPresets(t.Context(), template.ActiveVersionID)
	if err != nil || len(presets) != 1 {
		t.Fatalf("presets: %v, %v", presets, err)
	}
	agent := func() uuid.UUID {
		id := uuid.New()
		s.Daemon().Next().Finish(coderdtest.Built("state of "+id.String(), coderdtest.Resource(id)))
		s.Exec(`UPDATE workspace_agents SET first_connected_at = now(), last_connected_at = now(), lifecycle_state = 'ready' WHERE id = $1`, id)
		return id
	}
	if err := s.Workspaces.RunSchedule(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	agent()
	if _, err := s.As("ann").CreateWorkspace(t.Context(), sdk.Me, sdk.CreateWorkspaceRequest{TemplateID: template.ID, Name: "claimed", TemplateVersionPresetID: presets[0].ID}); err != nil {
		t.Fatal(err)
	}
	agent()
	s.Workspace("ann", "dev", template.ID)
	agent()
	if err := s.PubSub.Publish(t.Context(), "dashboards", "message"); err != nil {
		t.Fatal(err)
	}

	text, err := os.ReadFile("testdata/coder-dashboards.promql")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if query := strings.TrimSpace(line); !strings.HasPrefix(query, "#") {
			testwait.Until(t, query, func() error {
				n, err := queries(query)
				if err == nil && n == 0 {
					err = fmt.Errorf("no series")
				}
				return err
			})
		}
	}
	checkMetrics(t, scraped.URL)
}

// startPrometheus runs Prometheus, and returns what asks it for the number of series of an expression.
func startPrometheus(t *testing.T, program, target string) func(query string) (int, error) {
	t.Helper()
	dir, addr := t.TempDir(), testport.Addr()
	config := filepath.Join(dir, "prometheus.yml")
	text := "global: {scrape_interval: 1s}\nscrape_configs:\n  - job_name: codermesh\n    static_configs: [{targets: [\"" + target + "\"]}]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // it reports the signal
		if t.Failed() {
			t.Logf("prometheus:\n%s", log.String())
		}
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(query string) (int, error) {
		resp, err := client.Get("http://" + addr + "/api/v1/query?query=" + url.QueryEscape(query))
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		var answer struct {
			Error string
			Data  struct {
				Result []json.RawMessage
			}
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("%s: %s, %w", resp.Status, answer.Error, err)
		}
		return len(answer.Data.Result), nil
	}
}

// checkMetrics has promtool read what a server's scrape answers.
func checkMetrics(t *testing.T, target string) {
	t.Helper()
	resp, err := http.Get(target)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = resp.Body
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
