package organizations_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// versionIn imports a version in the default organization and moves it to another.
func (w *world) versionIn(org uuid.UUID) uuid.UUID {
	w.T.Helper()
	v := w.Version(nil, nil)
	w.Exec(`UPDATE template_versions SET organization_id = $2 WHERE id = $1`, v.ID, org)
	w.Exec(`UPDATE provisioner_jobs SET organization_id = $2 WHERE id = $1`, v.Job.ID, org)
	return v.ID
}

// during begins a transaction, sends a request that must wait for it, commits, and returns the request's answer.
func (w *world) during(p person, begin func(pgx.Tx) error, method, path string, body any) (status int, text string) {
	w.T.Helper()
	ctx := w.T.Context()
	tx, err := w.DB.Pool.Begin(ctx)
	if err != nil {
		w.T.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // no effect after Commit
	if err := begin(tx); err != nil {
		w.T.Fatal(err)
	}
	p.Token(p.name)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		var answer []byte
		status, answer = p.send(method, path, body)
		text = string(answer)
	}()
	testwait.Until(w.T, "the request waits for the transaction", func() error {
		select {
		case <-answered:
			return nil // too early, as its answer shows
		default:
			return w.Blocked()
		}
	})
	if err := tx.Commit(ctx); err != nil {
		w.T.Fatal(err)
	}
	<-answered
	return status, text
}

func statements(ctx context.Context, args []any, all ...string) func(pgx.Tx) error {
	return func(tx pgx.Tx) error {
		for _, text := range all {
			if _, err := tx.Exec(ctx, text, args...); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestNothingIsAddedToAnOrganizationThatIsBeingDeleted: what would keep an organization from being deleted either comes first, and the
// deletion is refused, or is not created.
func TestNothingIsAddedToAnOrganizationThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.File("olga")
	for what, request := range map[string]struct {
		path string
		body func(org uuid.UUID) any
	}{
		"template": {"templates", func(org uuid.UUID) any { return sdk.CreateTemplateRequest{Name: "t", VersionID: w.versionIn(org)} }},
		"version": {"templateversions", func(uuid.UUID) any {
			return sdk.CreateTemplateVersionRequest{StorageMethod: sdk.StorageFile, FileID: file, Provisioner: sdk.ProvisionerTerraform}
		}},
		"key":   {"provisionerkeys", func(uuid.UUID) any { return sdk.CreateProvisionerKeyRequest{Name: "k"} }},
		"group": {"groups", func(uuid.UUID) any { return sdk.CreateGroupRequest{Name: "g"} }},
		"role":  {"members/roles", func(uuid.UUID) any { return custom("r", "template.read") }},
	} {
		org := call[sdk.Organization](w.olga, 201, "POST", "organizations", sdk.CreateOrganizationRequest{Name: "gone-" + what})
		path := "organizations/" + org.ID.String() + "/" + request.path
		deletion := statements(t.Context(), []any{org.ID}, `SELECT FROM organizations WHERE id = $1 FOR UPDATE`, `UPDATE organizations SET deleted_at = now() WHERE id = $1`)
		if status, text := w.during(w.olga, deletion, "POST", path, request.body(org.ID)); status != 404 {
			t.Errorf("%s in an organization that is being deleted: got %d %s, want 404", what, status, text)
		}
		// Of an organization that stays.
		stays := call[sdk.Organization](w.olga, 201, "POST", "organizations", sdk.CreateOrganizationRequest{Name: "stays-" + what})
		path = "organizations/" + stays.ID.String() + "/" + request.path
		if status, text := w.olga.send("POST", path, request.body(stays.ID)); status != 201 && status != 200 {
			t.Errorf("%s: got %d %s", what, status, text)
		}
	}
	// The other order.
	insertion := statements(t.Context(), []any{w.west.ID},
		`INSERT INTO provisioner_keys (id, organization_id, name, tags, secret_hash, created_by) SELECT gen_random_uuid(), $1, 'k', '{}', 'x', id FROM users WHERE username = 'olga'`)
	if status, text := w.during(w.olga, insertion, "DELETE", "organizations/west", nil); status != 409 || !strings.Contains(text, "1 provisioner key") {
		t.Errorf("deletion during the creation of a key: got %d %s, want 409", status, text)
	}
}

// TestTemplateOfAnotherOrganizationsVersion: a template cannot be made of a version that belongs to another organization.
func TestTemplateOfAnotherOrganizationsVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	foreign, own := w.versionIn(w.west.ID), w.versionIn(w.east.ID)
	w.ada.want(400, "POST", "organizations/east/templates", sdk.CreateTemplateRequest{Name: "stolen", VersionID: foreign})
	w.wes.want(201, "POST", "organizations/west/templates", sdk.CreateTemplateRequest{Name: "mine", VersionID: foreign})
	w.ada.want(201, "POST", "organizations/east/templates", sdk.CreateTemplateRequest{Name: "mine", VersionID: own})
}

// TestWorkspacesAreForMembers: only members of the template's organization get workspaces of it, no matter who creates them, and
// a membership that ends at the same time counts as ended.
func TestWorkspacesAreForMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := call[sdk.Template](w.ada, 201, "POST", "organizations/east/templates", sdk.CreateTemplateRequest{Name: "mine", VersionID: w.versionIn(w.east.ID)})
	workspace := func(name string) sdk.CreateWorkspaceRequest {
		return sdk.CreateWorkspaceRequest{Name: name, TemplateID: made.ID}
	}
	w.out.want(400, "POST", "users/me/workspaces", workspace("own")) // the template does not exist for them
	for _, p := range []person{w.olga, w.ada} {
		if text := string(p.want(400, "POST", "users/out/workspaces", workspace("theirs"))); !strings.Contains(text, "not a member") {
			t.Errorf("%s creates a workspace for an outsider: %s", p.name, text)
		}
	}
	w.mia.want(201, "POST", "users/me/workspaces", workspace("own"))
	w.ada.want(201, "POST", "users/mia/workspaces", workspace("given"))

	removal := statements(t.Context(), []any{w.east.ID, w.User("eve")}, `DELETE FROM organization_members WHERE organization_id = $1 AND user_id = $2`)
	if status, text := w.during(w.ada, removal, "POST", "users/eve/workspaces", workspace("late")); status != 400 || !strings.Contains(text, "not a member") {
		t.Errorf("a workspace for a member who is being removed: got %d %s, want 400", status, text)
	}
	var left int
	if err := w.DB.Pool.QueryRow(t.Context(), `SELECT count(*) FROM workspaces WHERE owner_id = $1`, w.User("eve")).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d workspaces of a former member, %v", left, err)
	}
	w.olga.want(200, "POST", "organizations/east/members/eve", nil)
	creation := statements(t.Context(), []any{w.east.ID, w.User("eve")},
		`SELECT FROM organization_members WHERE organization_id = $1 AND user_id = $2 FOR KEY SHARE`,
		`INSERT INTO workspaces (id, organization_id, owner_id, template_id, name, automatic_updates)
			SELECT gen_random_uuid(), $1, $2, id, 'early', 'never' FROM templates WHERE organization_id = $1`)
	if status, text := w.during(w.olga, creation, "DELETE", "organizations/east/members/eve", nil); status != 409 || !strings.Contains(text, "still owns 1 workspace in east") {
		t.Errorf("the removal of a member whose workspace is being created: got %d %s, want 409", status, text)
	}
}
