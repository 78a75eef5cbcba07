package metrics_test

import (
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/metrics"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scrape returns what Prometheus reads, without the help lines.
func scrape(t *testing.T, c prometheus.Collector) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	var out []string
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", &provisionerpb.ImportResult{StartResources: []*provisionerpb.Resource{coderdtest.Resource(uuid.Nil)}})
	version, err := w.As("tom").TemplateVersion(t.Context(), template.ActiveVersionID)
	if err != nil {
		t.Fatal(err)
	}
	ws, agent := w.Running("ann", "dev", template.ID)
	w.Exec("UPDATE workspace_agents SET first_connected_at = now(), last_connected_at = now() WHERE id = $1", agent)
	w.Exec("UPDATE users SET last_seen_at = now() - interval '2 hours' WHERE username <> 'ann'")
	w.Exec("UPDATE users SET last_seen_at = now() WHERE username = 'ann'")
	w.Exec("INSERT INTO workspace_apps (id, agent_id, slug, health) VALUES (gen_random_uuid(), $1, 'ide', 'unhealthy'), (gen_random_uuid(), $1, 'docs', 'disabled')", agent)
	w.Exec("UPDATE workspace_agents SET lifecycle_state = 'ready', started_at = now() - interval '9 seconds', ready_at = now() - interval '2 seconds' WHERE id = $1", agent)
	got := scrape(t, metrics.New(w.DB, func(id uuid.UUID, _ *uuid.UUID) (*sdk.AgentConnections, string, time.Duration) {
		if id != agent {
			t.Errorf("asked for agent %s, want %s", id, agent)
		}
		return &sdk.AgentConnections{SSH: 2, ReconnectingPTY: 1, RxBytes: 5e9, TxBytes: 7}, "eu", 25 * time.Millisecond
	}, slog.New(slog.DiscardHandler)))
	if slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, `app_name="docs"`) }) {
		t.Error("an app without a health check has a health")
	}
	for _, want := range []string{
		`coderd_agents_up{template_name="process",template_version="` + version.Name + `",username="ann",workspace_name="` + ws.Name + `"} 1`,
		`coderd_workspace_latest_build_status{status="succeeded",template_name="process",template_version="` + version.Name + `",workspace_owner="ann",workspace_transition="start"} 1`,
		`coderd_api_workspace_latest_build{status="succeeded"} 1`,
		"coderd_api_active_users_duration_hour 1", `codermesh_jobs{status="pending"} 0`, `codermesh_jobs{status="running"} 0`,
		"codermesh_provisioners_online 1", "codermesh_database_up 1", "codermesh_jobs_oldest_pending_seconds 0",
		`coderd_agents_connections{agent_name="main",lifecycle_state="ready",status="connected",username="ann",workspace_name="` + ws.Name + `"} 1`,
		`coderd_agents_apps{agent_name="main",app_name="ide",health="unhealthy",username="ann",workspace_name="` + ws.Name + `"} 1`,
		`coderd_agentstats_session_count_ssh{agent_name="main",username="ann",workspace_name="` + ws.Name + `"} 2`,
		`coderd_agentstats_session_count_vscode{agent_name="main",username="ann",workspace_name="` + ws.Name + `"} 0`,
		`coderd_agentstats_session_count_jetbrains{agent_name="main",username="ann",workspace_name="` + ws.Name + `"} 0`,
		`coderd_agentstats_session_count_reconnecting_pty{agent_name="main",username="ann",workspace_name="` + ws.Name + `"} 1`,
		`coderd_agentstats_rx_bytes{agent_name="main",username="ann",workspace_name="` + ws.Name + `"} 5e+09`,
		`coderd_agentstats_tx_bytes{agent_name="main",username="ann",workspace_name="` + ws.Name + `"} 7`,
		`coderd_agents_connection_latencies_seconds{agent_name="main",derp="eu",preferred="true",username="ann",workspace_name="` + ws.Name + `"} 0.025`,
		`coderd_agentstats_startup_script_seconds{agent_name="main",success="true",template_name="process",template_version="` + version.Name + `",username="ann",workspace_name="` + ws.Name + `"} 7`,
		`codermesh_build_info{revision="` + buildinfo.Revision() + `",version="` + buildinfo.Version() + `"} 1`,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// TestPrebuildMetrics checks the metrics of prebuilt workspaces: one is ready, and one failed.
func TestPrebuildMetrics(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	w.Template("process", &provisionerpb.ImportResult{Presets: []*provisionerpb.Preset{{Name: "big", Prebuilds: &provisionerpb.Prebuilds{Instances: 2}}}})
	if err := w.Workspaces.RunSchedule(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	failed := coderdtest.Built("")
	failed.Error = "no capacity"
	w.Daemon().Next().Finish(failed)
	w.Daemon().Next().Finish(coderdtest.Built("state"))
	got := scrape(t, metrics.New(w.DB, nil, slog.New(slog.DiscardHandler)))
	for name, value := range map[string]string{
		"created_total": "2", "failed_total": "1", "claimed_total": "0", "desired": "2", "running": "1", "eligible": "1", "preset_hard_limited": "0",
	} {
		want := "coderd_prebuilt_workspaces_" + name + `{organization_name="default",preset_name="big",template_name="process"} ` + value
		if !slices.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// TestNoDatabase checks that without the database a scrape still gets an answer, which reports that.
func TestNoDatabase(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	c := metrics.New(w.DB, nil, slog.New(slog.DiscardHandler))
	w.Exec("ALTER TABLE provisioner_daemons RENAME TO gone")
	got := scrape(t, c)
	w.Exec("ALTER TABLE gone RENAME TO provisioner_daemons")
	if !slices.Contains(got, "codermesh_database_up 0") || slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, "codermesh_jobs") }) {
		t.Errorf("without the database:\n%s", strings.Join(got, "\n"))
	}
	if got = scrape(t, c); !slices.Contains(got, "codermesh_database_up 1") {
		t.Errorf("with it again:\n%s", strings.Join(got, "\n"))
	}
}

// TestMesh checks the metrics of one server's part of the mesh.
func TestMesh(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	got := scrape(t, metrics.NewMesh(func() metrics.MeshNumbers {
		return metrics.MeshNumbers{
			Online: 3, Lost: 1, RelayConnections: 2, SentBytes: 30, ReceivedBytes: 40, ForwardedSent: 10, ForwardedReceived: 20,
			Links: []sdk.ServerLink{{Server: id, Connected: true, LatencyMillis: 1.5}, {Server: uuid.New(), LatencyMillis: 7}},
		}
	}))
	want := []string{
		`codermesh_mesh_participants{state="lost"} 1`, `codermesh_mesh_participants{state="online"} 3`,
		`codermesh_relay_bytes_total{direction="received"} 40`, `codermesh_relay_bytes_total{direction="sent"} 30`, "codermesh_relay_connections 2",
		`codermesh_relay_forwarded_packets_total{direction="received"} 20`, `codermesh_relay_forwarded_packets_total{direction="sent"} 10`,
		`codermesh_server_link_rtt_seconds{server="` + id.String() + `"} 0.0015`, `codermesh_server_links{state="down"} 1`, `codermesh_server_links{state="up"} 1`,
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
