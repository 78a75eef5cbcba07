package templates_test

import (
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestUnsafeAddresses checks that an import with an address that cannot be opened fails, and names the place.
func TestUnsafeAddresses(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	for name, agent := range map[string]*provisionerpb.Agent{
		"main.tf:3": {Name: "main", Place: "main.tf:3", TroubleshootingUrl: "javascript:alert(1)"},
		"main.tf:9": {Name: "main", Place: "main.tf:3", Apps: []*provisionerpb.App{{Slug: "x", Place: "main.tf:9", External: true, Url: "javascript:alert(1)"}}},
	} {
		job := imported(t, w, &provisionerpb.ImportResult{StartResources: []*provisionerpb.Resource{{Name: "vm", Type: "vm", Agents: []*provisionerpb.Agent{agent}}}})
		if job.Status != sdk.JobFailed || !strings.HasPrefix(job.Error, name+": ") {
			t.Errorf("%s: %q, want an error at %s", job.Status, job.Error, name)
		}
	}
}

// TestImportSaysWhatItLeavesOut checks that the server tells a template's author in the import's log, and not its operator, what it cannot
// store; and that it refuses presets of one name from any provisioner.
func TestImportSaysWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	job := imported(t, w, &provisionerpb.ImportResult{
		Parameters: []*provisionerpb.Parameter{{Name: "p", Type: "string"}},
		StartResources: []*provisionerpb.Resource{{Name: "vm", Type: "vm", Agents: []*provisionerpb.Agent{
			{Name: "main", Place: "main.tf:3", Apps: []*provisionerpb.App{{Slug: "web"}, {Slug: "web"}}, Monitors: []*provisionerpb.AgentMonitor{{Volume: "/"}, {Volume: "/"}}},
		}}},
	})
	var log strings.Builder
	for line, err := range w.As("tom").FollowTemplateVersionLogs(t.Context(), *job.Input.TemplateVersionID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		log.WriteString(string(line.Level) + " " + line.Output + "\n")
	}
	for _, want := range []string{`warn The app "web" is left out: its agent has another app with this slug.`, `warn main.tf:3: The agent "main" does not watch the volume "/": `} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in:\n%s", want, log.String())
		}
	}
	job = imported(t, w, &provisionerpb.ImportResult{Presets: []*provisionerpb.Preset{{Name: "a"}, {Name: "a"}}})
	if want := `Two presets are named "a".`; job.Status != sdk.JobFailed || job.Error != want {
		t.Errorf("%s: %q, want %q", job.Status, job.Error, want)
	}
}

// imported returns the import that a provisioner ends with a result.
func imported(t *testing.T, w *coderdtest.Server, found *provisionerpb.ImportResult) sdk.ProvisionerJob {
	t.Helper()
	v, err := w.As("tom").CreateTemplateVersion(t.Context(), "default", sdk.CreateTemplateVersionRequest{FileID: w.File("tom")})
	if err != nil {
		t.Fatal(err)
	}
	w.Daemon().Next().Finish(&provisionerpb.Result{Of: &provisionerpb.Result_TemplateImport{TemplateImport: found}})
	if v, err = w.As("tom").TemplateVersion(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	return v.Job
}
