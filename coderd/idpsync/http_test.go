package idpsync_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server with the organization east. olga owns the deployment, ada administers east, wes administers west, eve east's members,
// and mia is a member of east.
type world struct {
	*coderdtest.Server
	east, west sdk.Organization
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Server: coderdtest.New(t)}
	for _, name := range []string{"olga", "ada", "wes", "eve", "mia"} {
		w.User(name)
	}
	w.east = call[sdk.Organization](w, "olga", 201, "POST", "organizations", sdk.CreateOrganizationRequest{Name: "east"})
	w.west = call[sdk.Organization](w, "olga", 201, "POST", "organizations", sdk.CreateOrganizationRequest{Name: "west"})
	for _, m := range []string{"east ada organization-admin", "west wes organization-admin", "east eve organization-user-admin", "east mia"} {
		f := strings.Fields(m)
		w.want("olga", 200, "POST", "organizations/"+f[0]+"/members/"+f[1], nil)
		w.want("olga", 200, "PUT", "organizations/"+f[0]+"/members/"+f[1]+"/roles", sdk.UpdateRolesRequest{Roles: f[2:]})
	}
	return w
}

// want sends a request as a user, and fails the test unless the answer has the status.
func (w *world) want(user string, status int, method, path string, body any) string {
	w.T.Helper()
	var payload io.Reader = http.NoBody
	if text, ok := body.(string); ok {
		payload = strings.NewReader(text)
	} else if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			w.T.Fatal(err)
		}
		payload = strings.NewReader(string(text))
	}
	r := httptest.NewRequest(method, "/api/v2/"+path, payload)
	r.Header.Set("Coder-Session-Token", w.Token(user))
	answer := httptest.NewRecorder()
	w.Mux.ServeHTTP(answer, r)
	if answer.Code != status {
		w.T.Errorf("%s: %s %s: got %d %s, want %d", user, method, path, answer.Code, answer.Body, status)
	}
	return strings.TrimSpace(answer.Body.String())
}

func call[T any](w *world, user string, status int, method, path string, body any) (out T) {
	w.T.Helper()
	text := w.want(user, status, method, path, body)
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		w.T.Fatalf("%s %s: answer %q: %v", method, path, text, err)
	}
	return out
}

const (
	siteSync  = "settings/idpsync/organization"
	groupSync = "organizations/east/settings/idpsync/groups"
	roleSync  = "organizations/east/settings/idpsync/roles"
)

// TestSettings: administrators read, replace and edit the settings, with rows in the audit log.
func TestSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if got := w.want("ada", 200, "GET", groupSync, nil); got != `{"field":"","mapping":{},"regex_filter":null,"auto_create_missing_groups":false}` {
		t.Errorf("initial settings of groups: %s", got)
	}
	if got := w.want("ada", 200, "GET", roleSync, nil); got != `{"field":"","mapping":{}}` {
		t.Errorf("initial settings of roles: %s", got)
	}
	g := call[sdk.Group](w, "ada", 201, "POST", "organizations/east/groups", sdk.CreateGroupRequest{Name: "devs"})
	want := `{"field":"groups","mapping":{"d":["` + g.ID.String() + `"]},"regex_filter":"^x","auto_create_missing_groups":true,"legacy_group_name_mapping":{"a":"b"}}`
	if got := w.want("ada", 200, "PATCH", groupSync, want); got != want {
		t.Errorf("replaced: %s", got)
	}
	want = `{"field":"g","mapping":{"d":["` + g.ID.String() + `"]},"regex_filter":null,"auto_create_missing_groups":false,"legacy_group_name_mapping":{"a":"b"}}`
	w.want("ada", 200, "PATCH", groupSync+"/config", `{"field":"g"}`)
	if got := w.want("olga", 200, "GET", groupSync, nil); got != want {
		t.Errorf("after config: %s", got)
	}
	// As the stock program's library writes it.
	w.want("ada", 200, "PATCH", roleSync, `{"field":"r","mapping":{}}`)
	w.want("ada", 200, "PATCH", roleSync+"/mapping", `{"Add":[{"Given":"lead","Gets":"organization-admin"},{"Given":"lead","Gets":"organization-auditor"}],"Remove":null}`)
	if got := w.want("ada", 200, "PATCH", roleSync+"/mapping", `{"Remove":[{"Given":"lead","Gets":"organization-admin"}]}`); got != `{"field":"r","mapping":{"lead":["organization-auditor"]}}` {
		t.Errorf("after mapping: %s", got)
	}
	w.want("olga", 200, "PATCH", siteSync+"/config", `{"field":"o","assign_default":true}`)
	want = `{"field":"o","mapping":{"e":["` + w.east.ID.String() + `"]},"organization_assign_default":true}`
	if got := w.want("olga", 200, "PATCH", siteSync+"/mapping", `{"Add":[{"Given":"e","Gets":"`+w.east.ID.String()+`"}]}`); got != want {
		t.Errorf("organizations: %s", got)
	}
	rows := call[sdk.AuditLogsResponse](w, "olga", 200, "GET", "audit?q=resource_type:idp_sync_settings_group&limit=10", nil).AuditLogs
	if len(rows) != 2 || rows[1].Diff["field"].New != "groups" || rows[0].Actor != "ada" || rows[0].Organization == nil || rows[0].ResourceTarget != "east" {
		t.Errorf("audit rows %+v", rows)
	}
	for _, kind := range []string{"role", "organization"} {
		if n := call[sdk.AuditLogsResponse](w, "olga", 200, "GET", "audit?q=resource_type:idp_sync_settings_"+kind+"&limit=10", nil).Count; n == 0 {
			t.Errorf("no rows of %s sync", kind)
		}
	}
}

// TestWhoMaySync: members and administrators of members, of other organizations and of one organization cannot change what they do not own.
func TestWhoMaySync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{groupSync, roleSync} {
		for user, status := range map[string]int{"mia": 403, "eve": 403, "wes": 404, "ada": 200, "olga": 200} {
			w.want(user, status, "GET", path, nil)
			for _, change := range []string{"", "/config", "/mapping"} {
				w.want(user, status, "PATCH", path+change, "{}")
			}
		}
	}
	for _, user := range []string{"ada", "mia"} {
		for _, change := range []string{"", "/config", "/mapping"} {
			w.want(user, 403, "PATCH", siteSync+change, "{}")
		}
		w.want(user, 403, "GET", siteSync, nil)
	}
	// A role with a power that organization administrators lack can be mapped only by those who hold it.
	w.Exec(`INSERT INTO organization_roles (organization_id, name, powers) VALUES ($1, 'mighty', '[{"action":"read","resource":"workspace state"}]')`, w.east.ID)
	mighty := `{"field":"r","mapping":{"x":["mighty"]}}`
	if got := w.want("ada", 403, "PATCH", roleSync, mighty); !strings.Contains(got, "powers that you do not have") {
		t.Errorf("refusal: %s", got)
	}
	w.want("ada", 403, "PATCH", roleSync+"/mapping", `{"add":[{"given":"x","gets":"mighty"}]}`)
	w.want("olga", 200, "PATCH", roleSync, mighty)
	// Who else gets the role, or no longer gets it, is not for ada to decide either.
	w.want("ada", 403, "PATCH", roleSync+"/config", `{"field":"other"}`)
	w.want("ada", 403, "PATCH", roleSync, `{"field":"r","mapping":{"me":["mighty"]}}`)
	w.want("ada", 403, "PATCH", roleSync+"/mapping", `{"add":[{"given":"me","gets":"mighty"}]}`)
	w.want("ada", 403, "PATCH", roleSync+"/mapping", `{"remove":[{"given":"x","gets":"mighty"}]}`)
	w.want("ada", 200, "PATCH", roleSync+"/mapping", `{"add":[{"given":"x","gets":"organization-auditor"}]}`) // what is mapped already stays
	w.Exec(`DELETE FROM organization_roles WHERE name = 'mighty'`)
	w.want("ada", 200, "PATCH", roleSync+"/config", `{"field":"other"}`)
}

// TestBadSettings: what cannot work is refused, and changes nothing.
func TestBadSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	elsewhere := call[sdk.Group](w, "wes", 201, "POST", "organizations/west/groups", sdk.CreateGroupRequest{Name: "w"})
	pushed := call[sdk.Group](w, "ada", 201, "POST", "organizations/east/groups", sdk.CreateGroupRequest{Name: "pushed"})
	w.Exec("INSERT INTO scim_groups (group_id, external_id) VALUES ($1, 'x')", pushed.ID)
	group := func(id uuid.UUID) string { return `{"field":"g","mapping":{"x":["` + id.String() + `"]}}` }
	for _, row := range []struct{ user, path, body, want string }{
		{"ada", groupSync, group(elsewhere.ID), "does not exist in east"},
		{"ada", groupSync, group(uuid.New()), "does not exist in east"},
		{"ada", groupSync, group(w.east.ID), "always contains all members"},
		{"ada", groupSync, group(pushed.ID), "SCIM decides"},
		{"ada", groupSync, `{"field":"g","regex_filter":"("}`, "regular expression"},
		{"ada", groupSync, `{"field":" g"}`, "name of a claim"},
		{"ada", groupSync, `{"field":"` + strings.Repeat("x", 600) + `"}`, "name of a claim"},
		{"ada", groupSync, `{"field":"g","mapping":{"":[]}}`, "texts of 1 to"},
		{"ada", groupSync, `{"field":5}`, "field"},
		{"ada", groupSync, `{"field":"g","mapping":{"x":["devs"]}}`, ""},
		{"ada", groupSync + "/mapping", `{"add":[{"given":"x","gets":"devs"}]}`, "not an id"},
		{"ada", roleSync, `{"field":"r","mapping":{"x":["owner"]}}`, "does not exist"},
		{"ada", roleSync, `{"field":"r","mapping":{"x":["nope"]}}`, "does not exist"},
		{"olga", siteSync, `{"field":"o","mapping":{"x":["` + uuid.NewString() + `"]}}`, "does not exist"},
		{"olga", siteSync + "/mapping", `{"add":[{"given":"x","gets":"east"}]}`, "not an id"},
	} {
		if got := w.want(row.user, 400, "PATCH", row.path, row.body); !strings.Contains(got, row.want) {
			t.Errorf("%s %s: got %s, want %q", row.path, row.body, got, row.want)
		}
	}
	for _, path := range []string{groupSync, roleSync, siteSync} {
		if got := w.want("olga", 200, "GET", path, nil); !strings.Contains(got, `"field":""`) {
			t.Errorf("%s: a refused change was stored: %s", path, got)
		}
	}
}

// TestSimultaneousMappings: no entry is lost when administrators add entries at the same instant.
func TestSimultaneousMappings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.Token("ada")
	var work sync.WaitGroup
	for i := range 12 {
		work.Go(func() {
			r := httptest.NewRequest("PATCH", "/api/v2/"+roleSync+"/mapping", strings.NewReader(`{"add":[{"given":"`+string(rune('a'+i))+`","gets":"organization-auditor"}]}`))
			r.Header.Set("Coder-Session-Token", token)
			answer := httptest.NewRecorder()
			w.Mux.ServeHTTP(answer, r)
			if answer.Code != 200 {
				t.Errorf("%d %s", answer.Code, answer.Body)
			}
		})
	}
	work.Wait()
	if got := call[sdk.RoleSyncSettings](w, "ada", 200, "GET", roleSync, nil).Mapping; len(got) != 12 {
		t.Errorf("%d entries of 12: %v", len(got), got)
	}
}

// TestFields: administrators see the names and values of claims, those of an organization only its members', and no personal ones.
func TestFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for user, claims := range map[string]string{
		"mia": `{"sub":"s","email":"m@x","groups":["a","b",5],"dept":"sales"}`, "wes": `{"roles":["r"],"groups":["c"]}`,
	} {
		w.Exec(`INSERT INTO user_links (user_id, login_type, issuer, subject, claims) VALUES ($1, 'oidc', 'i', $2, $3)`, w.User(user), user, claims)
	}
	for _, row := range []struct{ user, path, want string }{
		{"olga", "settings/idpsync/available-fields", `["dept","groups","roles"]`},
		{"olga", "settings/idpsync/field-values?claimField=groups", `["a","b","c"]`},
		{"ada", "organizations/east/settings/idpsync/available-fields", `["dept","groups"]`},
		{"ada", "organizations/east/settings/idpsync/field-values?claimField=groups", `["a","b"]`},
		{"ada", "organizations/east/settings/idpsync/field-values?claimField=dept", `["sales"]`},
		{"ada", "organizations/east/settings/idpsync/field-values?claimField=nope", `[]`},
	} {
		if got := w.want(row.user, 200, "GET", row.path, nil); got != row.want {
			t.Errorf("%s: got %s, want %s", row.path, got, row.want)
		}
	}
	w.want("ada", 400, "GET", "organizations/east/settings/idpsync/field-values?claimField=email", nil)
	w.want("ada", 400, "GET", "organizations/east/settings/idpsync/field-values", nil)
	w.want("mia", 403, "GET", "organizations/east/settings/idpsync/available-fields", nil)
	w.want("wes", 404, "GET", "organizations/east/settings/idpsync/available-fields", nil)
	w.want("ada", 403, "GET", "settings/idpsync/available-fields", nil)
}
