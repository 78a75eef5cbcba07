package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// raw is a server that answers every path below /api/v2/ with a text, and all others as a server without that route.
func raw(t *testing.T, answers map[string]string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Coder-Build-Version", "v2.33.10007+codermesh")
		text, ok := answers[strings.TrimPrefix(r.URL.Path, "/api/v2/")]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			text = fmt.Sprintf(`{"message":"%s does not exist on this server."}`, r.URL.Path)
		}
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestNewerServer: fields that this program does not know are ignored, values that it does not know are shown as text.
func TestNewerServer(t *testing.T) {
	t.Parallel()
	const workspace = `{"id":"11111111-1111-1111-1111-111111111111","name":"dev","owner_name":"ada","template_name":"docker","mood":{"colour":"blue"},"automatic_updates":"sometimes",
		"health":{"healthy":true,"failing_agents":[],"score":7},"latest_build":{"id":"22222222-2222-2222-2222-222222222222","build_number":3,"status":"hibernating","transition":"hibernate","reason":"sunset",
		"job":{"id":"33333333-3333-3333-3333-333333333333","status":"dreaming","priority":9},"resources":[{"type":"pod","name":"main","agents":[{"id":"44444444-4444-4444-4444-444444444444","name":"main",
		"status":"asleep","lifecycle_state":"napping","health":{"healthy":true},"apps":[{"slug":"code","health":"splendid","sharing_level":"planet","open_in":"hologram"}],"sensors":[1,2]}]}]}}`
	server := raw(t, map[string]string{
		"workspaces": `{"workspaces":[` + workspace + `],"count":1,"next":"x"}`, "users/me/workspace/dev": workspace, "buildinfo": `{"version":"v2.33.10007+codermesh","era":"new"}`,
		"users": `{"users":[{"id":"55555555-5555-5555-5555-555555555555","username":"ada","status":"frozen","login_type":"telepathy","roles":[{"name":"wizard"}]}],"count":1}`,
	})
	at := []string{"--url", server, "--token", "t"}
	for line, want := range map[string]string{
		"list": "Hibernating", "show dev": "asleep", "show dev -o json": `"napping"`, "list -o json": `"hibernating"`, "users list": "frozen", "open app dev": "code",
	} {
		r := run(t, "", "", append(at, strings.Fields(line)...)...)
		if r.fault != nil || !strings.Contains(strings.ToLower(r.out), strings.ToLower(want)) {
			t.Errorf("%s: %v\n%s%s", line, r.fault, r.out, r.err)
		}
	}
}

// TestOlderServer: a command that the server has no route for ends with one sentence.
func TestOlderServer(t *testing.T) {
	t.Parallel()
	server := raw(t, map[string]string{"users/me": `{"username":"ada"}`})
	at := []string{"--url", server, "--token", "t"}
	for _, line := range []string{
		"list", "templates list", "users list", "secret list", "notifications pause", "groups list", "organizations list", "provisioner list", "provisioner jobs list", "tokens list", "whoami", "audit list",
		"sharing status dev", "templates archive docker -y", "open app dev", "schedule show dev", "publickey", "external-auth access-token github", "logs dev", "state pull dev", "favorite dev",
	} {
		r := run(t, "", "", append(at, strings.Fields(line)...)...)
		switch {
		case r.fault == nil:
			if line != "whoami" {
				t.Errorf("%s: no error:\n%s", line, r.out)
			}
		case fault.As(r.fault) == nil || strings.Contains(r.fault.Error(), "\n") || len(r.fault.Error()) < 10:
			t.Errorf("%s: got %v, want one sentence", line, r.fault)
		}
	}
}

// TestListsAsJSON: every list is a JSON list, and [] when it is empty.
func TestListsAsJSON(t *testing.T) {
	t.Parallel()
	const id = "11111111-1111-1111-1111-111111111111"
	object := `{"id":"` + id + `","name":"x","username":"ada","organization_id":"` + id + `","is_default":true,"active_version_id":"` + id + `"}`
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := strings.TrimPrefix(r.URL.Path, "/api/v2/"); {
		case path == "users":
			_, _ = io.WriteString(w, `{"users":[],"count":0}`)
		case path == "workspaces":
			_, _ = io.WriteString(w, `{"workspaces":[],"count":0}`)
		case path == "audit":
			_, _ = io.WriteString(w, `{"audit_logs":[],"count":0}`)
		case path == "connectionlog":
			_, _ = io.WriteString(w, `{"connection_logs":[],"count":0}`)
		case strings.HasSuffix(path, "paginated-members"):
			_, _ = io.WriteString(w, `{"members":[],"count":0}`)
		case path == "workspaceproxies":
			_, _ = io.WriteString(w, `{"regions":[]}`)
		case path == "mesh/peers":
			_, _ = io.WriteString(w, `{"peers":[]}`)
		case path == "templates" && r.URL.Query().Get("q") != "", path == "organizations", strings.HasSuffix(path, "me/organizations"):
			_, _ = io.WriteString(w, "["+object+"]")
		case strings.HasPrefix(path, "organizations/") && strings.Count(path, "/") == 1, path == "users/me", path == "users/me/workspace/x", strings.HasPrefix(path, "templateversions/") && strings.Count(path, "/") == 1:
			_, _ = io.WriteString(w, object)
		default:
			_, _ = io.WriteString(w, "[]")
		}
	}))
	t.Cleanup(srv.Close)
	found := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.Name() != "list" || cmd.Flags().Lookup("output") == nil || cmd.Parent().Name() == "features" { // which prints an object
			return
		}
		if cmd.Parent().Name() == "sync" { // it asks no server
			return
		}
		found++
		args := append([]string{"--url", srv.URL, "--token", "t"}, strings.Fields(cmd.CommandPath())[1:]...)
		if strings.Contains(cmd.Use, "TEMPLATE") || strings.Contains(cmd.Use, "WORKSPACE") {
			args = append(args, "x")
		}
		r := run(t, "", "", append(args, "-o", "json")...)
		var list []map[string]any
		if err := json.Unmarshal([]byte(r.out), &list); r.fault != nil || err != nil || list == nil {
			t.Errorf("%s -o json: %v, %v:\n%s", cmd.CommandPath(), r.fault, err, r.out)
		}
		if r := run(t, "", "", append(args, "-o", "yaml")...); fault.CodeOf(r.fault) != fault.Invalid || !strings.Contains(r.fault.Error(), "json") {
			t.Errorf("%s -o yaml: got %v, want the formats", cmd.CommandPath(), r.fault)
		}
	}
	walk(New())
	if found < 12 {
		t.Errorf("only %d lists", found)
	}
}

// TestDidYouMean checks the hints for misspelled names.
func TestDidYouMean(t *testing.T) {
	t.Parallel()
	const list = `{"workspaces":[{"id":"11111111-1111-1111-1111-111111111111","name":"backend","owner_name":"ada"}],"count":1}`
	const org = `{"id":"22222222-2222-2222-2222-222222222222","name":"east","is_default":true}`
	server := raw(t, map[string]string{
		"workspaces": list, "templates": `[{"name":"docker"}]`, "users": `{"users":[{"username":"grace"}],"count":1}`,
		"groups": `[{"name":"developers"}]`, "organizations": "[" + org + "]", "users/me/organizations": "[" + org + "]",
	})
	at := []string{"--url", server, "--token", "t"}
	for line, want := range map[string]string{
		"list --outptu json": "coder list --output", "show backed": "Did you mean backend?", "show zzzzzz": "coder list", "list --zzzzz": "coder list --help", "list -Q": "coder list --help",
		"users show grase": "Did you mean grace?", "users suspend grase": "Did you mean grace?", "users delete zzzzzz": "coder users list",
		"users edit-roles grase --roles owner": "Did you mean grace?", "groups delete develpers": "Did you mean developers?", "templates list --org eats": "--org east",
		"lsit": "coder list", "ssh --wiat=no dev": "coder ssh --wait",
	} {
		r := run(t, "", "", append(at, strings.Fields(line)...)...)
		if r.fault == nil || !strings.Contains(hintText(r.fault), want) {
			t.Errorf("%s: got %v, hint %q, want %q", line, r.fault, hintText(r.fault), want)
		}
	}
	if r := run(t, "", "", append(at, "list", "-c", "worksapce")...); r.fault == nil || !strings.Contains(r.fault.Error(), `Did you mean "workspace"?`) {
		t.Errorf("a column: got %v", r.fault)
	}
}
