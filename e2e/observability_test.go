package e2e_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testport"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestMetricsOfDashboardExist checks that every metric that the Grafana dashboard and the alert rules name exists on a real server, or a real
// provisioner, that has run a build. (`make test-rules` checks the expressions themselves.)
func TestMetricsOfDashboardExist(t *testing.T) {
	t.Parallel()
	servers, provisioners := testport.Addr(), testport.Addr()
	d := external(t, "--prometheus-enable", "--prometheus-address", servers)
	d.provisioner("rack", "--prometheus-address", provisioners)
	d.pushProcess()
	d.coder("create", "dev", "-t", "process", "-y")
	d.coder("ssh", "dev", "--", "true") // the agent has connected

	exist := map[string]bool{}
	for _, addr := range []string{servers, provisioners} {
		for _, name := range metricNames(t, addr) {
			exist[name] = true
		}
	}
	named := namedMetrics(t)
	if len(named) < 20 {
		t.Fatalf("the dashboard and the rules name only %v", named)
	}
	for _, name := range named {
		if !exist[name] {
			t.Errorf("no server has %s", name)
		}
	}
	var dev sdk.Workspace
	d.get("/api/v2/users/me/workspace/dev", &dev)
	for series, want := range map[string]string{
		`coderd_workspace_builds_total{action="start",status="success",template_name="process",template_version="` + dev.LatestBuild.TemplateVersionName + `",workspace_name="dev",workspace_owner="ada",workspace_transition="start"}`: "1",
		`coderd_provisionerd_workspace_build_timings_seconds_count{status="success",template_name="process",workspace_transition="start"}`:                                                                                              "1",
		`coderd_agents_connections{agent_name="main",lifecycle_state="ready",status="connected",username="ada",workspace_name="dev"}`:                                                                                                   "1",
		"coderd_provisionerd_num_daemons": "1",
	} {
		testwait.Until(t, series, metricIs(t, servers, series, want))
	}
}

// metricNames returns the names of the series that an address serves.
func metricNames(t *testing.T, addr string) []string {
	t.Helper()
	answer, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			names[line[:strings.IndexAny(line, "{ ")]] = true
		}
	}
	return slices.Collect(maps.Keys(names))
}

// metricName matches our own metrics in an expression, and those of the process.
var metricName = regexp.MustCompile(`\b(?:coderd|codermesh|go|process)_[a-z0-9_]+`)

// namedMetrics returns the metrics that the dashboard and the rules name.
func namedMetrics(t *testing.T) []string {
	t.Helper()
	read := func(file string) []byte {
		text, err := os.ReadFile("../packaging/observability/" + file)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(read("dashboard.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct{ Rules []struct{ Expr string } }
	}
	if err := yaml.Unmarshal(read("rules.yaml"), &rules); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	add := func(expr string) {
		for _, name := range metricName.FindAllString(expr, -1) {
			found[name] = true
		}
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			add(target.Expr)
		}
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			add(rule.Expr)
		}
	}
	return slices.Sorted(maps.Keys(found))
}
