package workspaces_test

import (
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func TestTimings(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("timed", &provisionerpb.ImportResult{})
	ws, agent := w.Running("ann", "dev", template.ID)
	build, job := ws.LatestBuild.ID, ws.LatestBuild.Job.ID
	w.Exec(`DELETE FROM provisioner_job_logs WHERE job_id = $1`, job)
	w.Exec(`UPDATE provisioner_jobs SET created_at = '2026-01-01T00:00:00Z', started_at = '2026-01-01T00:00:02Z', completed_at = '2026-01-01T00:00:09Z' WHERE id = $1`, job)
	for _, line := range []struct{ at, source, stage, text string }{
		{"00:00:01", "provisioner_daemon", "Queued", "Waiting for a provisioner."},
		{"00:00:03", "provisioner_daemon", "Setting up", "Preparing the template"},
		{"00:00:04", "provisioner", "Starting workspace", "docker_volume.home: Creating..."},
		{"00:00:05", "provisioner", "Starting workspace", "docker_container.dev[0]: Creating..."},
		{"00:00:06", "provisioner", "Starting workspace", "docker_volume.home: Creation complete after 2s [id=x]"},
		{"00:00:07", "provisioner", "Starting workspace", "docker_container.dev[0]: Creation complete after 2s [id=y]"},
		{"00:00:07", "provisioner", "Starting workspace", "evil: Creation complete after 2s"},
		{"00:00:08", "provisioner_daemon", "Cleaning up", "Done"},
	} {
		w.Exec(`INSERT INTO provisioner_job_logs (job_id, created_at, source, level, stage, output) VALUES ($1, $2::timestamptz, $3, 'info', $4, $5)`, job, "2026-01-01T"+line.at+"Z", line.source, line.stage, line.text)
	}
	w.Exec(`UPDATE workspace_agents SET created_at = '2026-01-01T00:00:06Z', first_connected_at = '2026-01-01T00:00:10Z' WHERE id = $1`, agent)
	w.Exec(`UPDATE workspace_agent_scripts SET started_at = '2026-01-01T00:00:11Z', ended_at = '2026-01-01T00:00:14Z', exit_code = 3 WHERE agent_id = $1`, agent)
	got, err := w.As("ann").BuildTimings(t.Context(), build)
	if err != nil {
		t.Fatal(err)
	}
	type span struct {
		what     string
		from, to int // seconds
	}
	second := func(at time.Time) int { return int(at.Sub(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) / time.Second) }
	var spans []span
	for _, p := range got.Provisioner {
		spans = append(spans, span{p.Source + " " + p.Action + " " + p.Stage + " " + p.Resource, second(p.StartedAt), second(p.EndedAt)})
	}
	for _, a := range got.Connections {
		spans = append(spans, span{a.AgentName + " " + a.Stage, second(a.StartedAt), second(a.EndedAt)})
	}
	for _, s := range got.Scripts {
		spans = append(spans, span{s.AgentName + " " + s.Stage + " " + s.Status + " " + s.DisplayName, second(s.StartedAt), second(s.EndedAt)})
	}
	want := []span{
		{"server queue Queued ", 0, 2},
		{"provisioner run Setting up ", 3, 4}, {"provisioner run Starting workspace ", 4, 8}, {"provisioner run Cleaning up ", 8, 9},
		{"provisioner create Starting workspace docker_volume.home", 4, 6}, {"provisioner create Starting workspace docker_container.dev[0]", 5, 7},
		{"main connect", 6, 10}, {"main start exit_failure Startup Script", 11, 14},
	}
	if len(spans) != len(want) {
		t.Fatalf("got %v, want %v", spans, want)
	}
	for i := range want {
		if spans[i] != want[i] {
			t.Errorf("span %d is %v, want %v", i, spans[i], want[i])
		}
	}
	if _, err := w.As("bob").BuildTimings(t.Context(), build); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("another user: %v", err)
	}
}
