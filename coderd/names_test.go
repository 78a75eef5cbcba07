package coderd_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestNamesAreVisible checks that no name that an administrator gives has a character that would control the terminals of others, or change
// the order of their text. TestNamesForTerminals checks the names that users give themselves.
func TestNamesAreVisible(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	token := s.Token("olga")
	template := s.Template("docker", nil)
	for what, target := range map[string]struct{ method, path, body string }{
		"a template":              {"PATCH", "templates/" + template.ID.String(), `{"display_name": "NAME"}`},
		"a template's text":       {"PATCH", "templates/" + template.ID.String(), `{"description": "NAME"}`},
		"an organization":         {"PATCH", "organizations/default", `{"display_name": "NAME"}`},
		"a new organization":      {"POST", "organizations", `{"name": "UNIQUE", "display_name": "NAME"}`},
		"a role":                  {"POST", "organizations/default/members/roles", `{"name": "UNIQUE", "display_name": "NAME"}`},
		"a group":                 {"POST", "organizations/default/groups", `{"name": "UNIQUE", "display_name": "NAME"}`},
		"a group's name":          {"POST", "organizations/default/groups", `{"name": "NAME"}`},
		"a region":                {"POST", "workspaceproxies", `{"name": "UNIQUE", "display_name": "NAME"}`},
		"the deployment":          {"PUT", "appearance", `{"application_name": "NAME"}`},
		"a name of a new account": {"POST", "users", `{"username": "UNIQUE", "email": "UNIQUE@example.com", "login_type": "none", "name": "NAME"}`},
	} {
		send := func(name string) int {
			t.Helper()
			unique := "x" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12]
			body := strings.NewReplacer("UNIQUE", unique, "NAME", name).Replace(target.body)
			r := httptest.NewRequest(target.method, "/api/v2/"+target.path, strings.NewReader(body))
			r.Header.Set(sdk.SessionHeader, token)
			w := httptest.NewRecorder()
			s.Mux.ServeHTTP(w, r)
			return w.Code
		}
		for _, bad := range []string{`A\u001b[2J`, `A\u009b2J`, `A\u0007B`, `A\rB`, `A\u007fB`, `A\u202eB`, `A\u2066B`, `A\u0000B`} {
			if strings.HasSuffix(what, "template's text") && bad == `A\rB` {
				continue // a text may have lines
			}
			if got := send(bad); got != http.StatusBadRequest {
				t.Errorf("%s named %s: %d, want 400", what, bad, got)
			}
		}
		if got := send("Ünïcode アリス"); got >= 300 {
			t.Errorf("%s with a name of letters: %d", what, got)
		}
	}
}
