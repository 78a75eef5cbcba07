package coderd_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// lists reads lists of a server, as the user named.
type lists struct {
	*coderdtest.Server
	known map[string]string // texts in braces of paths
}

// want compares a list with the entries' names, whose field is key, or a refusal with a text.
func (l lists) want(as, path string, status int, key, want string) {
	l.T.Helper()
	for name, id := range l.known {
		path = strings.ReplaceAll(path, "{"+name+"}", id)
	}
	r := httptest.NewRequest("GET", "/api/v2/"+path, http.NoBody)
	if as != "nobody" {
		r.Header.Set(sdk.SessionHeader, l.Token(as))
	}
	w := httptest.NewRecorder()
	l.Handler.ServeHTTP(w, r)
	got := w.Body.String()
	if w.Code == http.StatusOK {
		got = names(l.T, w.Body.Bytes(), key)
	} else if strings.Contains(got, want) {
		got = want
	}
	if w.Code != status || got != want {
		l.T.Errorf("%s: %s: got %d %q, want %d %q", as, path, w.Code, got, status, want)
	}
}

// names returns one field of the entries of a list, which comes alone or beside their number, and that number.
func names(t testing.TB, body []byte, key string) string {
	t.Helper()
	var found []string
	add := func(list json.RawMessage) {
		var entries []map[string]any
		if err := json.Unmarshal(list, &entries); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		for _, e := range entries {
			found = append(found, fmt.Sprint(e[key]))
		}
	}
	var page struct {
		Users, Members json.RawMessage
		Count          int
	}
	if json.Unmarshal(body, &page) != nil {
		add(body)
		return strings.Join(found, " ")
	}
	if page.Users != nil {
		add(page.Users)
	} else {
		add(page.Members)
	}
	return fmt.Sprintf("%s of %d", strings.Join(found, " "), page.Count)
}

// TestPagesAfterID checks that pages of builds and of template versions continue after one of them, and after nothing that is
// not in the list.
func TestPagesAfterID(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ws, theirs := s.WorkspaceRow("ann", "dev"), s.WorkspaceRow("bob", "dev")
	for range 3 {
		s.BuildRow(ws, sdk.TransitionStart, sdk.JobSucceeded)
	}
	s.BuildRow(theirs, sdk.TransitionStart, sdk.JobSucceeded)
	template, first := s.TemplateRow()
	other, foreign := s.TemplateRow()
	s.Exec("UPDATE template_versions SET template_id = $1 WHERE id = $2", template, first)
	s.Exec("UPDATE template_versions SET template_id = $1 WHERE id = $2", other, foreign)
	for i := 2; i <= 4; i++ {
		s.Exec(`INSERT INTO template_versions (id, organization_id, template_id, job_id, name, created_by, archived)
			VALUES (gen_random_uuid(), $1, $2, $3, $4, $5, $6)`, s.Org, template,
			s.JobRow(sdk.JobTemplateImport, sdk.JobSucceeded), fmt.Sprintf("v%d", i), s.User("ann"), i == 3)
	}
	l := lists{s, map[string]string{"ws": ws.String(), "template": template.String(), "foreign": foreign.String(),
		"none": uuid.NewString(), "zeros": uuid.Nil.String()}}
	id := func(name, sql string, args ...any) {
		t.Helper()
		var id uuid.UUID
		if err := s.DB.Pool.QueryRow(t.Context(), sql, args...).Scan(&id); err != nil {
			t.Fatal(err)
		}
		l.known[name] = id.String()
	}
	for i := 1; i <= 3; i++ {
		id(fmt.Sprintf("b%d", i), "SELECT id FROM workspace_builds WHERE workspace_id = $1 AND build_number = $2", ws, i)
	}
	for i := 1; i <= 4; i++ {
		name := fmt.Sprintf("v%d", i)
		id(name, "SELECT id FROM template_versions WHERE template_id = $1 AND name = $2", template, name)
	}
	id("theirs", "SELECT id FROM workspace_builds WHERE workspace_id = $1", theirs)

	for _, c := range []struct {
		as, after string
		status    int
		want      string
	}{
		{"ann", "{zeros}", 200, "3 2 1"},
		{"ann", "{b3}&limit=1", 200, "2"},
		{"ann", "{b3}&limit=1&offset=1", 200, "1"},
		{"ann", "{b1}", 200, ""},
		{"ann", "{theirs}", 400, "no such entry"},
		{"ann", "{none}", 400, "no such entry"},
		{"ann", "first", 400, "must be a UUID"},
		{"bob", "{b3}", 404, ""},
		{"nobody", "{b3}", 401, ""},
	} {
		l.want(c.as, "workspaces/{ws}/builds?after_id="+c.after, c.status, "build_number", c.want)
	}
	for _, c := range []struct {
		as, after string
		status    int
		want      string
	}{
		{"tom", "{zeros}", 200, "v1 v2 v4"},
		{"tom", "{v1}&limit=1", 200, "v2"},
		{"tom", "{v2}&include_archived=true", 200, "v3 v4"},
		{"tom", "{v3}", 200, "v4"}, // archived since the page before
		{"tom", "{v4}&sort=created", 200, "v2 v1"},
		{"tom", "{v1}&sort=created", 200, ""},
		{"tom", "{v4}&q=v4", 200, ""},
		{"tom", "{foreign}", 400, "no such entry"},
		{"tom", "{none}", 400, "no such entry"},
		{"nobody", "{v1}", 401, ""},
	} {
		l.want(c.as, "templates/{template}/versions?after_id="+c.after, c.status, "name", c.want)
	}
	l.want("olga", "audit?after_id={none}", 400, "id", "use limit and offset") // logs are paged by offset and time
}

// TestUsersAfterID checks that pages of users and members continue after one of them, with the number of all, also where that
// user was deleted between two pages, and that the parameter does not tell where someone else would be in a list.
func TestUsersAfterID(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	l := lists{s, map[string]string{"none": uuid.NewString(), "zeros": uuid.Nil.String()}}
	for _, name := range []string{"abob", "ann", "bob", "carl", "mia", "olga"} {
		l.known[name] = s.User(name).String()
	}
	s.Exec("DELETE FROM organization_members WHERE user_id = $1", s.User("mia"))
	for _, c := range []struct {
		as, after string
		status    int
		want      string
	}{
		{"olga", "{zeros}&limit=2", 200, "abob ann of 6"},
		{"olga", "{ann}&limit=2", 200, "bob carl of 6"},
		{"olga", "{ann}&limit=1&offset=1", 200, "carl of 6"},
		{"olga", "{ann}&sort=username&limit=1", 200, "bob of 6"},
		{"olga", "{ann}&offset=9", 200, " of 6"},
		{"olga", "{olga}", 200, " of 6"},
		{"olga", "{zeros}&q=bob", 200, "bob abob of 2"},
		{"olga", "{bob}&q=bob", 200, "abob of 2"},
		{"olga", "{abob}&q=bob", 200, " of 2"},
		{"olga", "{ann}&q=role:owner", 200, "olga of 1"}, // the search does not find ann
		{"olga", "{none}", 400, "no such entry"},
		{"olga", "7", 400, "must be a UUID"},
		{"olga", "{ann}&sort=seen", 400, "order by username"},
		{"olga", "{ann}&sort=created", 400, "order by username"},
		{"nobody", "{ann}", 401, ""},
		// A member's list has the member alone.
		{"ann", "{ann}", 200, " of 1"},
		{"ann", "{olga}", 400, "no such entry"},
		{"ann", "{none}", 400, "no such entry"},
	} {
		l.want(c.as, "users?after_id="+c.after, c.status, "username", c.want)
	}
	for _, c := range []struct {
		after  string
		status int
		want   string
	}{
		{"{ann}&limit=2", 200, "bob carl of 5"},
		{"{olga}", 200, " of 5"},
		{"{bob}&q=bob", 200, "abob of 2"},
		{"{mia}", 400, "no such entry"}, // mia is not a member
		{"{none}", 400, "no such entry"},
	} {
		l.want("olga", "organizations/default/paginated-members?after_id="+c.after, c.status, "username", c.want)
	}
	if err := s.As("olga").DeleteUser(t.Context(), "bob"); err != nil {
		t.Fatal(err)
	}
	l.want("olga", "users?limit=1&after_id={bob}", 200, "username", "carl of 5")
}
