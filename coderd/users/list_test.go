package users_test

import (
	"encoding/csv"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// many adds n users to the database who cannot sign in: p000, p001, …
func (a *api) many(n int) {
	a.t.Helper()
	a.Exec(`INSERT INTO users (id, username, email, password_hash, login_type, status, roles)
		SELECT gen_random_uuid(), 'p' || lpad(i::text, 3, '0'), 'p' || lpad(i::text, 3, '0') || '@example.com', '', 'none', 'active', '{}'
		FROM generate_series(0, $1 - 1) i`, n)
}

// TestUserPages checks that pages, the count and an export reach every user of a long list once.
func TestUserPages(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	const n = 230
	a.many(n)
	want := []string{"admin"}
	for i := range n {
		want = append(want, fmt.Sprintf("p%03d", i))
	}
	var got []string
	for offset := 0; ; offset += 100 {
		page := call[sdk.UsersResponse](owner, 200, "GET", fmt.Sprintf("users?limit=100&offset=%d", offset), nil)
		if page.Count != len(want) {
			t.Fatalf("count %d, want %d", page.Count, len(want))
		}
		for _, u := range page.Users {
			got = append(got, u.Username)
		}
		if len(page.Users) < 100 {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, a.exported(owner, "")); diff != "" {
		t.Errorf("export (-want +got):\n%s", diff)
	}
	if got := a.exported(owner, "?q=p22&sort=created"); len(got) != 10 {
		t.Errorf("export of a search: %q", got)
	}
}

// table reads an export.
func (a *api) table(p person, query string) [][]string {
	a.t.Helper()
	rows, err := csv.NewReader(strings.NewReader(string(p.want(200, "GET", "users/export"+query, nil)))).ReadAll()
	if err != nil || len(rows) == 0 || rows[0][0] != "username" {
		a.t.Fatalf("export: %q, %v", rows, err)
	}
	return rows
}

// exported returns the usernames in an export.
func (a *api) exported(p person, query string) []string {
	a.t.Helper()
	var names []string
	for _, row := range a.table(p, query)[1:] {
		names = append(names, row[0])
	}
	return names
}

func TestUserFilters(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	owner.add("ann", "auditor")
	owner.add("bob")
	call[sdk.User](owner, 201, "POST", "users", sdk.CreateUserRequest{Username: "cli", Email: "cli@example.com", LoginType: sdk.LoginNone})
	east := call[sdk.Organization](owner, 201, "POST", "organizations", sdk.CreateOrganizationRequest{Name: "east"})
	owner.want(200, "POST", "organizations/east/members/bob", nil)
	a.Exec("UPDATE users SET last_seen_at = now() - interval '40 days' WHERE username = 'bob'")
	for q, want := range map[string]string{
		"role:auditor":      "ann",
		"role:member":       "bob cli",
		"login_type:none":   "cli",
		"organization:east": "admin bob", // who creates one belongs to it
		"organization:" + east.ID.String() + " role:owner": "admin",
		"organization:default role:member":                 "bob cli",
		"last_seen_before:2000-01-01":                      "cli", // never
		"role:member organization:east status:dormant":     "",
	} {
		path := "?q=" + url.QueryEscape(q)
		page := call[sdk.UsersResponse](owner, 200, "GET", "users"+path, nil)
		var names []string
		for _, u := range page.Users {
			names = append(names, u.Username)
		}
		if got := strings.Join(names, " "); got != want || page.Count != len(names) {
			t.Errorf("%s: got %q and count %d, want %q", q, got, page.Count, want)
		}
		if got := strings.Join(a.exported(owner, path), " "); got != want {
			t.Errorf("%s: exported %q, want %q", q, got, want)
		}
	}
	for _, bad := range []string{"organization:west", "organization:'+OR+1=1", "login_type:saml", "last_seen_after:soon"} {
		owner.want(400, "GET", "users?q="+url.QueryEscape(bad), nil)
		owner.want(400, "GET", "users/export?q="+url.QueryEscape(bad), nil)
	}
	owner.want(400, "GET", "users/export?sort=password_hash", nil)
}

// TestUserListAttacker checks that a member's searches and exports tell nothing about other users and organizations, and that a name cannot
// become a formula in an administrator's spreadsheet.
func TestUserListAttacker(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	mallory := owner.add("mallory")
	call[sdk.Organization](owner, 201, "POST", "organizations", sdk.CreateOrganizationRequest{Name: "secret"})
	if got := a.exported(mallory, ""); !slices.Equal(got, []string{"mallory"}) {
		t.Errorf("mallory exports %q", got)
	}
	if got := a.exported(mallory, "?q=role:owner"); len(got) > 0 {
		t.Errorf("mallory exports owners: %q", got)
	}
	// An organization that exists is refused like one that does not.
	hidden := mallory.want(400, "GET", "users?q=organization:secret", nil)
	if other := mallory.want(400, "GET", "users?q=organization:absent", nil); strings.ReplaceAll(string(hidden), "secret", "absent") != string(other) {
		t.Errorf("mallory learns of an organization: %s, not %s", hidden, other)
	}
	for _, name := range []string{`=HYPERLINK("http://evil","x")`, "+1+1", "-1", "@SUM(A1)", `"quoted", =1`} {
		mallory.want(200, "PUT", "users/me/profile", sdk.UpdateUserProfileRequest{Username: "mallory", Name: name})
		want := "'" + name
		if name[0] == '"' {
			want = name
		}
		if got := a.table(owner, "?q=mallory")[1][1]; got != want {
			t.Errorf("the name %q became the cell %q", name, got)
		}
	}
	a.nobody().want(401, "GET", "users/export", nil)
	owner.want(400, "POST", "users", sdk.CreateUserRequest{Username: "export", Email: "x@example.com", Password: password})
}

// TestSeen checks that a user's request is known after a minute, and is written once.
func TestSeen(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	alice := a.first().add("alice")
	seen := func() (ago float64) {
		t.Helper()
		row := a.DB.Pool.QueryRow(t.Context(), "SELECT extract(epoch FROM now() - last_seen_at)::float8 FROM users WHERE id = $1", alice.id)
		if err := row.Scan(&ago); err != nil {
			t.Fatal(err)
		}
		return ago
	}
	used := func(ago string) {
		t.Helper()
		a.Exec("UPDATE users SET last_seen_at = now() - interval '1 hour' WHERE id = $1", alice.id)
		a.Exec("UPDATE api_keys SET last_used_at = now() - $2::interval WHERE id = $1", alice.token[:10], ago)
		alice.want(200, "GET", "users/me", nil)
	}
	used("1 second")
	if seen() < 3600 {
		t.Error("a request was written again within a minute")
	}
	used("61 seconds")
	if ago := seen(); ago >= 3600 {
		t.Errorf("a request after a minute left the user seen %.0f s ago", ago)
	}
	// It extends the session once an hour only: the index of ends stays as it is.
	var ends, later string
	read := func(into *string) {
		t.Helper()
		if err := a.DB.Pool.QueryRow(t.Context(), "SELECT expires_at::text FROM api_keys WHERE id = $1", alice.token[:10]).Scan(into); err != nil {
			t.Fatal(err)
		}
	}
	read(&ends)
	used("61 seconds")
	if read(&later); later != ends {
		t.Errorf("the session's end moved from %s to %s within an hour", ends, later)
	}
}
