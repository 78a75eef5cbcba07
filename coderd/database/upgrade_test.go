package database_test

import (
	"log/slog"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
)

// at returns the URL of a database with the schema of an older release on which the statements were run.
func at(t *testing.T, version int64, statements ...string) string {
	t.Helper()
	url := dbtest.EmptyURL(t)
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*config)
	defer db.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, database.Migrations(), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.UpTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	for _, sql := range statements {
		if _, err := db.ExecContext(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	return url
}

// TestUpgradeDropsHostKeys checks that agents from a release with host keys are kept, and that their private keys are
// removed.
func TestUpgradeDropsHostKeys(t *testing.T) {
	t.Parallel()
	const id = "11111111-1111-4111-8111-111111111111"
	db, err := database.Open(t.Context(), at(t, 16,
		`INSERT INTO users (id, username, email) VALUES ('`+id+`', 'ann', 'ann@example.com')`,
		`INSERT INTO files (id, sha256, mimetype, data, created_by) VALUES ('`+id+`', 'x', 'application/x-tar', '', '`+id+`')`,
		`INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id) SELECT '`+id+`', id, '`+id+`', 'workspace_build', '`+id+`' FROM organizations`,
		`INSERT INTO template_versions (id, organization_id, job_id, name, created_by) SELECT '`+id+`', id, '`+id+`', 'v', '`+id+`' FROM organizations`,
		`INSERT INTO templates (id, organization_id, name, active_version_id, created_by) SELECT '`+id+`', id, 't', '`+id+`', '`+id+`' FROM organizations`,
		`INSERT INTO workspaces (id, organization_id, owner_id, template_id, name) SELECT '`+id+`', id, '`+id+`', '`+id+`', 'dev' FROM organizations`,
		`INSERT INTO workspace_resources (id, job_id, transition, type, name) VALUES ('`+id+`', '`+id+`', 'start', 'x', 'y')`,
		`INSERT INTO workspace_agents (id, resource_id, workspace_id, build_number, name, ssh_host_key) VALUES ('`+id+`', '`+id+`', '`+id+`', 1, 'main', 'ssh-ed25519 AAAA')`,
		`INSERT INTO workspace_host_keys (workspace_id, agent_name, private_key, public_key) VALUES ('`+id+`', 'main', 'private', 'ssh-ed25519 AAAA')`,
	), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	agent, err := db.GetAgent(t.Context(), uuid.MustParse(id))
	if err != nil || agent.Name != "main" {
		t.Errorf("agent: %+v, %v", agent, err)
	}
	var left bool
	if err := db.Pool.QueryRow(t.Context(), "SELECT to_regclass('workspace_host_keys') IS NOT NULL").Scan(&left); err != nil || left {
		t.Errorf("private host keys are left: %t, %v", left, err)
	}
}
