// Package rules_test checks packaging/observability with Prometheus' own parsers: the alert rules, their templates, and every expression of the
// Grafana dashboard. That the metrics exist on a running server is checked by e2e.
package rules_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

const folder = "../../packaging/observability/"

func TestRules(t *testing.T) {
	t.Parallel()
	groups, errs := rulefmt.ParseFile(folder+"rules.yaml", false)
	for _, err := range errs {
		t.Error(err)
	}
	names := map[string]bool{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			if names[rule.Alert] || rule.Alert == "" {
				t.Errorf("two rules have the name %q", rule.Alert)
			}
			names[rule.Alert] = true
			if severity := rule.Labels["severity"]; severity != "page" && severity != "ticket" {
				t.Errorf("%s has the severity %q, want page or ticket", rule.Alert, severity)
			}
			if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("%s does not say what is wrong and what to do", rule.Alert)
			}
		}
	}
	if len(names) == 0 {
		t.Error("there are no rules")
	}
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(folder + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ H, W, X, Y int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	ids, used := map[int]bool{}, map[[2]int]string{}
	expressions := 0
	for _, panel := range dashboard.Panels {
		if ids[panel.ID] {
			t.Errorf("two panels have the id %d", panel.ID)
		}
		ids[panel.ID] = true
		for x := panel.GridPos.X; x < panel.GridPos.X+panel.GridPos.W; x++ {
			for y := panel.GridPos.Y; y < panel.GridPos.Y+panel.GridPos.H; y++ {
				if other := used[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q overlaps %q, or the right edge", panel.Title, other)
				}
				used[[2]int{x, y}] = panel.Title
			}
		}
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("panel %q shows nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			expressions++
			// Grafana replaces its variables before it asks Prometheus.
			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*").Replace(target.Expr)
			if _, err := parser.ParseExpr(expr); err != nil {
				t.Errorf("panel %q: %s: %v", panel.Title, target.Expr, err)
			}
		}
	}
	if expressions == 0 {
		t.Error("the dashboard has no expressions")
	}
}
