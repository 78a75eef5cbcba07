package database_test

import (
	"log/slog"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/database"
)

// TestUpgradeGivesPolicies checks that templates and workspaces of an earlier release get a policy that changes nothing for them, and that
// templates which a server of an earlier release creates afterwards get one too.
func TestUpgradeGivesPolicies(t *testing.T) {
	t.Parallel()
	const id, second = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	db, err := database.Open(t.Context(), at(t, 17,
		`INSERT INTO users (id, username, email) VALUES ('`+id+`', 'ann', 'ann@example.com')`,
		`INSERT INTO files (id, sha256, mimetype, data, created_by) VALUES ('`+id+`', 'x', 'application/x-tar', '', '`+id+`')`,
		`INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id) SELECT '`+id+`', id, '`+id+`', 'workspace_build', '`+id+`' FROM organizations`,
		`INSERT INTO template_versions (id, organization_id, job_id, name, created_by) SELECT '`+id+`', id, '`+id+`', 'v', '`+id+`' FROM organizations`,
		`INSERT INTO templates (id, organization_id, name, active_version_id, created_by) SELECT '`+id+`', id, 't', '`+id+`', '`+id+`' FROM organizations`,
		`INSERT INTO workspaces (id, organization_id, owner_id, template_id, name) SELECT '`+id+`', id, '`+id+`', '`+id+`', 'dev' FROM organizations`,
	), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if _, err := db.Pool.Exec(t.Context(), `INSERT INTO templates (id, organization_id, name, active_version_id, created_by)
		SELECT '`+second+`', id, 'later', '`+id+`', '`+id+`' FROM organizations`); err != nil {
		t.Fatal(err)
	}
	var policies, workspaces int
	if err := db.Pool.QueryRow(t.Context(), `SELECT
		(SELECT count(*) FROM template_policies WHERE (max_ttl_ms, failure_ttl_ms, dormant_ms, delete_ms, autostop_days) = (0, 0, 0, 0, 0)
			AND activity_bump_ms = 3600000 AND autostart_days = 127 AND allow_autostart AND allow_autostop AND allow_cancel),
		(SELECT count(*) FROM workspace_policy WHERE look_at = '-infinity')`).Scan(&policies, &workspaces); err != nil || policies != 2 || workspaces != 1 {
		t.Errorf("%d policies, %d workspaces to look at, %v; want 2 and 1", policies, workspaces, err)
	}
}
