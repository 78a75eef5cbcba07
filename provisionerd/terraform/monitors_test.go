package terraform_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestMonitors checks that what resources_monitoring enables is reported with the agent, and that impossible thresholds fail the import.
func TestMonitors(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	agent := func(monitors string) map[string]string {
		return files("resource \"coder_agent\" \"main\" {\n  arch = \"amd64\"\n  os = \"linux\"\n  resources_monitoring {\n" + monitors + "  }\n}\n" +
			"resource \"terraform_data\" \"dev\" {\n  input = coder_agent.main.id\n}\n")
	}
	volume := func(path string, enabled bool, threshold int) string {
		return fmt.Sprintf("    volume {\n      path = %q\n      enabled = %t\n      threshold = %d\n    }\n", path, enabled, threshold)
	}
	memory := func(enabled bool, threshold int) string {
		return fmt.Sprintf("    memory {\n      enabled = %t\n      threshold = %d\n    }\n", enabled, threshold)
	}
	j := newTrial(t, agent(memory(true, 80)+volume("/home/dev", true, 90)+volume("/", true, 95)+volume("/off", false, 1)))
	built := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
	var got []string
	for _, m := range built.GetResources()[0].GetAgents()[0].GetMonitors() {
		got = append(got, fmt.Sprint(m.GetVolume(), " ", m.GetThresholdPercent()))
	}
	if want := []string{" 80", "/ 95", "/home/dev 90"}; !slices.Equal(got, want) {
		t.Errorf("monitors %q, want %q", got, want)
	}
	if strings.Contains(j.sink.text(), "no effect") {
		t.Errorf("the log:\n%s", j.sink.text())
	}
	var many strings.Builder
	for i := range 17 {
		many.WriteString(volume(fmt.Sprint("/v", i), true, 90))
	}
	for name, c := range map[string]struct{ monitors, want string }{
		"memory above 100":  {memory(true, 101), "range (0 - 100), got 101"},
		"volume below 0":    {volume("/", true, -1), "range (0 - 100), got -1"},
		"a computed one":    {strings.Replace(memory(true, 7), "7", "parseint(\"150\", 10)", 1), "range (0 - 100), got 150"},
		"relative path":     {volume("home", true, 90), "absolute path"},
		"path of two lines": {volume("/a\nb", true, 90), "no control characters"},
		"a volume twice":    {volume("/", true, 90) + volume("/", true, 80), `duplicate volume path "/"`},
		"too many":          {many.String(), "more than 16 volumes: remove or disable some"},
	} {
		j := newTrial(t, agent(c.monitors))
		if result := j.importIt(e, &provisionerpb.TemplateImport{}); !strings.Contains(result.GetError(), c.want) {
			t.Errorf("%s: %q, want %q\n%s", name, result.GetError(), c.want, j.sink.text())
		}
	}
}
