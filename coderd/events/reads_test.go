package events_test

import (
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestAnnouncementsReadOnce checks that the announcements of one change read the workspace at most once, besides the change itself.
func TestAnnouncementsReadOnce(t *testing.T) {
	t.Parallel()
	rows := coderdtest.NewRows(t)
	workspace := rows.WorkspaceRow("ann", "dev")
	build := rows.BuildRow(workspace, sdk.TransitionStart, sdk.JobRunning)
	for _, tt := range []struct {
		change string
		arg    any
		reads  int64
	}{
		{"UPDATE workspaces SET name = 'renamed' WHERE id = $1", workspace, 1},
		{"UPDATE provisioner_jobs SET error = 'late' WHERE id = $1", build.Job, 1},
		{"UPDATE workspace_builds SET max_deadline = now() WHERE job_id = $1", build.Job, 1},
	} {
		tx, err := rows.DB.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		reads := func() (n int64) {
			t.Helper()
			if err := tx.QueryRow(t.Context(), `SELECT coalesce(seq_scan, 0) + coalesce(idx_scan, 0) FROM pg_stat_xact_user_tables
				WHERE relname = 'workspaces'`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := reads()
		if _, err := tx.Exec(t.Context(), tt.change, tt.arg); err != nil {
			t.Fatal(err)
		}
		if n := reads() - before; n != tt.reads {
			t.Errorf("%s: it reads workspaces %d times, want %d", tt.change, n, tt.reads)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
