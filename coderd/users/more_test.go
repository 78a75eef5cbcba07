package users_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

func TestSSHKey(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	alice := a.first().add("alice")
	first := call[sdk.GitSSHKey](alice, 200, "GET", "users/me/gitsshkey", nil)
	if again := call[sdk.GitSSHKey](alice, 200, "GET", "users/me/gitsshkey", nil); again.PublicKey != first.PublicKey {
		t.Error("the key changes by itself")
	}
	second := call[sdk.GitSSHKey](alice, 200, "PUT", "users/me/gitsshkey", nil)
	if second.PublicKey == first.PublicKey || !strings.HasPrefix(second.PublicKey, "ssh-ed25519 ") {
		t.Errorf("replaced %q by %q", first.PublicKey, second.PublicKey)
	}
	var stored string
	if err := a.db.Pool.QueryRow(t.Context(), "SELECT k::text FROM git_ssh_keys k WHERE user_id = $1", alice.id).Scan(&stored); err != nil || strings.Contains(stored, "PRIVATE KEY") {
		t.Errorf("the private key is stored in clear: %v", err)
	}
	pair, err := a.svc.SSHKey(t.Context(), a.db.Queries, alice.id)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey([]byte(pair.Private.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))); got != second.PublicKey || got != pair.Public {
		t.Errorf("the private key is not the public one's: %q", got)
	}
	a.exec("DELETE FROM git_ssh_keys") // an account that was made without
	if _, err := a.svc.SSHKey(t.Context(), a.db.Queries, alice.id); err != nil {
		t.Error(err)
	}
}

// TestWorkspaceSession: the token that a template can read acts for its user, without an owner's powers and without making
// other credentials, and ends with the next build and with the workspace.
func TestWorkspaceSession(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice := owner.add("alice")
	workspace := a.workspace(owner.id)
	token, err := a.svc.SessionFor(t.Context(), a.db.Queries, owner.id, workspace)
	if err != nil {
		t.Fatal(err)
	}
	inside := person{a, "inside the workspace", owner.id, token.Reveal()}
	inside.want(200, "GET", "users/me", nil)
	inside.want(404, "GET", "users/alice", nil)
	inside.want(403, "POST", "users", sdk.CreateUserRequest{Email: "x@example.com", Username: "x", Password: password})
	inside.want(403, "POST", "users/me/keys", nil)
	inside.want(403, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{})
	inside.want(403, "PUT", "users/me/password", sdk.UpdateUserPasswordRequest{OldPassword: password, Password: "Another-Password-1"})
	inside.want(403, "PUT", "users/me/roles", sdk.UpdateRolesRequest{Roles: []string{"owner"}})
	inside.want(403, "PUT", "users/me/gitsshkey", nil)
	inside.want(201, "POST", "files", raw{sdk.ContentTypeTar, tarOf(t, entry{name: "main.tf", text: "x"})})
	if tokens := call[[]sdk.APIKey](alice, 200, "GET", "users/me/keys/tokens", nil); len(tokens) != 0 {
		t.Errorf("tokens: %+v", tokens)
	}

	next, err := a.svc.SessionFor(t.Context(), a.db.Queries, owner.id, workspace)
	if err != nil {
		t.Fatal(err)
	}
	inside.want(401, "GET", "users/me", nil)
	inside.token = next.Reveal()
	inside.want(200, "GET", "users/me", nil)
	inside.want(200, "POST", "users/logout", nil)
	inside.want(401, "GET", "users/me", nil)
}

// workspace makes one of the user's by SQL: the API for that is another's.
func (a *api) workspace(owner uuid.UUID) uuid.UUID {
	a.t.Helper()
	id, template, version, job, file := uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New()
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{"INSERT INTO files (id, sha256, mimetype, data, created_by) VALUES ($1, '', '', '', $2)", []any{file, owner}},
		{`INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id)
			SELECT $1, id, $2, 'template_version_import', $3 FROM organizations`, []any{job, owner, file}},
		{`WITH t AS (INSERT INTO templates (id, organization_id, name, active_version_id, created_by)
			SELECT $1, id, 't', $2, $3 FROM organizations RETURNING organization_id)
			INSERT INTO template_versions (id, organization_id, template_id, job_id, name, created_by)
			SELECT $2, organization_id, NULL, $4, 'v', $3 FROM t`, []any{template, version, owner, job}},
		{"INSERT INTO workspaces (id, organization_id, owner_id, template_id, name) SELECT $1, id, $2, $3, 'w' FROM organizations", []any{id, owner, template}},
	} {
		a.exec(step.sql, step.args...)
	}
	return id
}

func TestUserWithWorkspacesStays(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice := owner.add("alice")
	a.workspace(alice.id)
	if text := owner.want(409, "DELETE", "users/alice", nil); !strings.Contains(string(text), "still owns") {
		t.Errorf("answer: %s", text)
	}
	a.exec("UPDATE workspaces SET deleted_at = now()")
	a.exec(`INSERT INTO external_auth_links (user_id, provider_id, tokens, refreshable) VALUES ($1, 'forge', 'sealed', false)`, alice.id)
	owner.want(204, "DELETE", "users/alice", nil)
	if links, err := a.db.ListExternalAuthLinks(t.Context(), alice.id); err != nil || len(links) != 0 {
		t.Errorf("what is left of her logins: %v, %v", links, err)
	}
	var keys int
	if err := a.db.Pool.QueryRow(t.Context(), "SELECT count(*) FROM git_ssh_keys WHERE user_id = $1", alice.id).Scan(&keys); err != nil || keys != 0 {
		t.Errorf("what is left of her key for Git: %d, %v", keys, err)
	}
}

// A workspace that is being made while its owner is deleted is counted, though its transaction has not ended.
func TestUserDeletedWhileWorkspaceIsMade(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice := owner.add("alice")
	id := a.workspace(alice.id)
	a.exec("UPDATE workspaces SET deleted_at = now()")
	tx, err := a.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if held, err := dbsqlc.New(tx).HoldUser(t.Context(), alice.id); err != nil || held != alice.id {
		t.Fatalf("hold: %s, %v", held, err)
	}
	if _, err := tx.Exec(t.Context(), "UPDATE workspaces SET deleted_at = NULL WHERE id = $1", id); err != nil {
		t.Fatal(err)
	}
	answer := make(chan int, 1)
	go func() {
		status, _ := owner.send("DELETE", "users/alice", nil)
		answer <- status
	}()
	a.awaitBlocked(t)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got != 409 {
		t.Errorf("deletion: got %d, want 409", got)
	}
	alice.want(200, "GET", "users/me", nil)
}

// awaitBlocked waits until a transaction of this database waits for another's lock.
func (a *api) awaitBlocked(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for blocked := 0; blocked == 0; {
		if err := a.db.Pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&blocked); err != nil {
			t.Fatalf("nothing waits: %v", err)
		}
	}
}

// entry is a file of an archive.
type entry struct {
	name, text, link string
	kind             byte
}

func tarOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		if err := w.WriteHeader(&tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: 0o644, Size: int64(len(e.text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, e := range entries {
		f, err := w.Create(e.name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestFiles(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	admin, member := owner.add("tad", "template-admin"), owner.add("alice")
	archive := tarOf(t, entry{name: "./", kind: tar.TypeDir}, entry{name: "./main.tf", text: "resource {}"}, entry{name: "link", kind: tar.TypeSymlink, link: "main.tf"})

	first := call[sdk.UploadResponse](admin, 201, "POST", "files", raw{sdk.ContentTypeTar, archive})
	if again := call[sdk.UploadResponse](admin, 200, "POST", "files", raw{sdk.ContentTypeTar, archive}); again.ID != first.ID {
		t.Errorf("the same bytes: got %s, then %s", first.ID, again.ID)
	}
	if got := admin.want(200, "GET", "files/"+first.ID.String(), nil); !bytes.Equal(got, archive) {
		t.Error("the file came back different")
	}
	zipped := owner.want(200, "GET", "files/"+first.ID.String()+"?format=zip", nil)
	z, err := zip.NewReader(bytes.NewReader(zipped), int64(len(zipped)))
	if err != nil || len(z.File) == 0 {
		t.Fatalf("as zip: %v", err)
	}
	// And a zip comes back as the tar it was made.
	up := call[sdk.UploadResponse](admin, 201, "POST", "files", raw{sdk.ContentTypeZip, zipOf(t, entry{name: "dir/main.tf", text: "hello"})})
	r := tar.NewReader(bytes.NewReader(admin.want(200, "GET", "files/"+up.ID.String(), nil)))
	h, err := r.Next()
	if err != nil || h.Name != "dir/main.tf" {
		t.Fatalf("zip as tar: %+v, %v", h, err)
	}
	if text, err := io.ReadAll(r); err != nil || string(text) != "hello" {
		t.Errorf("zip as tar: %q, %v", text, err)
	}

	member.want(403, "POST", "files", raw{sdk.ContentTypeTar, archive})
	member.want(403, "GET", "files/"+first.ID.String(), nil)
	admin.want(404, "GET", "files/"+uuid.NewString(), nil)
	admin.want(400, "GET", "files/nonsense", nil)
	admin.want(400, "GET", "files/"+first.ID.String()+"?format=rar", nil)

	huge := strings.Repeat("x", 11<<20)
	for name, row := range map[string]struct {
		body raw
		want int
	}{
		"no type":              {raw{"", archive}, 400},
		"another type":         {raw{"text/html", archive}, 400},
		"not a tar":            {raw{sdk.ContentTypeTar, []byte(strings.Repeat("x", 2000))}, 400},
		"nothing":              {raw{sdk.ContentTypeTar, nil}, 400},
		"no file in it":        {raw{sdk.ContentTypeTar, tarOf(t)}, 400},
		"cut off":              {raw{sdk.ContentTypeTar, tarOf(t, entry{name: "a", text: huge[:1<<20]})[:2000]}, 400},
		"not a zip":            {raw{sdk.ContentTypeZip, archive}, 400},
		"too large":            {raw{sdk.ContentTypeTar, tarOf(t, entry{name: "a", text: huge})}, 413},
		"zip bomb":             {raw{sdk.ContentTypeZip, zipOf(t, entry{name: "a", text: huge})}, 413},
		"climbs out":           {raw{sdk.ContentTypeTar, tarOf(t, entry{name: "../a", text: "x"})}, 400},
		"absolute":             {raw{sdk.ContentTypeTar, tarOf(t, entry{name: "/etc/passwd", text: "x"})}, 400},
		"zip climbs out":       {raw{sdk.ContentTypeZip, zipOf(t, entry{name: "a/../../b", text: "x"})}, 400},
		"link leads out":       {raw{sdk.ContentTypeTar, tarOf(t, entry{name: "d/l", kind: tar.TypeSymlink, link: "../../x"}, entry{name: "a", text: "x"})}, 400},
		"link is absolute":     {raw{sdk.ContentTypeTar, tarOf(t, entry{name: "l", kind: tar.TypeSymlink, link: "/etc/passwd"}, entry{name: "a", text: "x"})}, 400},
		"hard link":            {raw{sdk.ContentTypeTar, tarOf(t, entry{name: "l", kind: tar.TypeLink, link: "/etc/shadow"}, entry{name: "a", text: "x"})}, 400},
		"device":               {raw{sdk.ContentTypeTar, tarOf(t, entry{name: "null", kind: tar.TypeChar}, entry{name: "a", text: "x"})}, 400},
		"back-slashes are not": {raw{sdk.ContentTypeTar, tarOf(t, entry{name: `..\a`, text: "x"})}, 400},
	} {
		if got, text := admin.send("POST", "files", row.body); got != row.want {
			t.Errorf("%s: got %d %s, want %d", name, got, text, row.want)
		}
	}
}

func TestDeployment(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	nobody := a.nobody()
	info := call[sdk.BuildInfo](nobody, 200, "GET", "buildinfo", nil)
	if !strings.HasPrefix(info.Version, "v2.") || info.DashboardURL != "https://mesh.example.com" || uuid.Validate(info.DeploymentID) != nil {
		t.Errorf("buildinfo: %+v", info)
	}
	if again := call[sdk.BuildInfo](nobody, 200, "GET", "buildinfo", nil); again.DeploymentID != info.DeploymentID {
		t.Error("the deployment's id changes")
	}
	if methods := call[sdk.AuthMethods](nobody, 200, "GET", "users/authmethods", nil); !methods.Password.Enabled {
		t.Errorf("authmethods: %+v", methods)
	}
	nobody.want(200, "GET", "", nil)
	nobody.want(200, "GET", "appearance", nil)
	features := call[sdk.Entitlements](owner, 200, "GET", "entitlements", nil).Features
	for name, want := range map[string]bool{
		"access_control": true, "external_provisioner_daemons": true, "multiple_external_auth": true, "control_shared_ports": true,
		"audit_log": false, "multiple_organizations": false, "high_availability": false, "scim": false, "template_rbac": false,
		"workspace_proxy": false, "advanced_template_scheduling": false, "workspace_prebuilds": false, "browser_only": false,
	} {
		f, ok := features[name]
		if !ok || f.Enabled != want || (f.Entitlement == "entitled") != want || !want && f.Entitlement != "not_entitled" {
			t.Errorf("feature %s: %+v, want %t", name, f, want)
		}
	}
	if text := owner.want(200, "GET", "experiments", nil); strings.TrimSpace(string(text)) != "[]" {
		t.Errorf("experiments: %s", text)
	}
	if ssh := string(owner.want(200, "GET", "deployment/ssh", nil)); !strings.Contains(ssh, `"ssh_config_options":{}`) || !strings.Contains(ssh, `"hostname_suffix":"coder"`) {
		t.Errorf("deployment/ssh: %s", ssh)
	}
	org := call[sdk.Organization](owner, 200, "GET", "organizations/default", nil)
	if !org.IsDefault || org.Name != "default" {
		t.Errorf("organization: %+v", org)
	}
	for _, path := range []string{"organizations", "users/me/organizations"} {
		if list := call[[]sdk.Organization](owner, 200, "GET", path, nil); len(list) != 1 || list[0].ID != org.ID {
			t.Errorf("%s: %+v", path, list)
		}
	}
	call[sdk.Organization](owner, 200, "GET", "users/me/organizations/"+org.ID.String(), nil)
	owner.want(404, "GET", "organizations/another", nil)
	if members := call[[]sdk.OrganizationMember](owner, 200, "GET", "organizations/default/members", nil); len(members) != 1 || members[0].Email != "admin@example.com" {
		t.Errorf("members: %+v", members)
	}
	owner.want(404, "GET", "organizations/default/members/nobody", nil)
}

func TestRoles(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	admin := a.first()
	for _, p := range []person{admin, admin.add("ann")} {
		roles := call[[]sdk.AssignableRole](p, 200, "GET", "users/roles", nil)
		if len(roles) != 2 || roles[0].Name != "owner" || roles[1].Name != "template-admin" || roles[0].Assignable != (p.id == admin.id) {
			t.Errorf("%s: %+v", p.name, roles)
		}
	}
	a.nobody().want(401, "GET", "users/roles", nil)
}

// TestHolder: what was signed for a key is worth nothing when the key has ended.
func TestHolder(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	admin := a.first()
	ann := admin.add("ann")
	id, _, _ := strings.Cut(ann.token, "-")
	got, err := a.svc.Holder(t.Context(), id)
	if err != nil || got.UserID != ann.id || got.KeyID != id || got.FromWorkspace {
		t.Errorf("holder: %+v, %v", got, err)
	}
	ended := func(what string) {
		t.Helper()
		if _, err := a.svc.Holder(t.Context(), id); fault.CodeOf(err) != fault.Unauthenticated {
			t.Errorf("%s: %v", what, err)
		}
	}
	a.exec(`UPDATE users SET status = 'suspended' WHERE id = $1`, ann.id)
	ended("suspended")
	a.exec(`UPDATE users SET status = 'active' WHERE id = $1`, ann.id)
	a.exec(`UPDATE api_keys SET expires_at = now() WHERE id = $1`, id)
	ended("expired")
	a.exec(`DELETE FROM api_keys WHERE id = $1`, id)
	ended("deleted")
	if _, err := a.svc.Holder(t.Context(), ""); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("no key: %v", err)
	}
}
