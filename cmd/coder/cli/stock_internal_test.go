package cli

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestWhoami checks what scripts for Coder's command line read of it.
func TestWhoami(t *testing.T) {
	t.Parallel()
	org := uuid.MustParse("66666666-6666-4666-8666-666666666666")
	me := sdk.User{OrganizationIDs: []uuid.UUID{org}, Roles: []sdk.Role{{Name: "owner"}}}
	me.ID, me.Username = uuid.MustParse("77777777-7777-4777-8777-777777777777"), "ada"
	srv := newAPI(t, map[string]any{
		"GET users/me": me,
		"GET users/me/roles": sdk.UserRoles{
			Roles: []string{"owner"}, OrganizationRoles: sdk.Map[sdk.List[string]]{org.String(): {"organization-admin"}},
		},
	})
	at := []string{"--url", srv.url, "--token", "t", "whoami"}
	r := run(t, "", "", append(at, "-o", "json")...)
	var got []struct {
		URL, Username string
		UserID        uuid.UUID   `json:"user_id"`
		Organizations []uuid.UUID `json:"organization_ids"`
		Roles         map[string][]string
	}
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.fault != nil {
		t.Fatalf("%v, %v: %s", err, r.fault, r.out)
	}
	if len(got) != 1 || got[0].URL != srv.url || got[0].Username != "ada" || got[0].UserID != me.ID || !slices.Equal(got[0].Organizations, me.OrganizationIDs) ||
		!slices.Equal(got[0].Roles[org.String()], []string{"organization-admin"}) {
		t.Errorf("got %+v", got)
	}
	for line, want := range map[string]string{"": "You are ada at " + srv.url, "-o table -c username,roles": "owner"} {
		if r := run(t, "", "", append(at, strings.Fields(line)...)...); r.fault != nil || !strings.Contains(r.out, want) {
			t.Errorf("whoami %s: %v\n%s", line, r.fault, r.out)
		}
	}
}

// TestVersionJSON checks the fields of Coder's command line. Editors read the version.
func TestVersionJSON(t *testing.T) {
	t.Parallel()
	r := run(t, "", "", "version", "-o", "json")
	var got map[string]any
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.fault != nil {
		t.Fatalf("%v, %v", err, r.fault)
	}
	if got["version"] != buildinfo.Version() || got["slim"] != true || got["agpl"] != false || got["external_url"] != sdk.ProjectURL {
		t.Errorf("got %v", got)
	}
	if _, ok := got["build_time"].(string); !ok {
		t.Errorf("build_time is %v", got["build_time"])
	}
}

// TestFlagsOfCoder checks flags of Coder's command line that scripts give.
func TestFlagsOfCoder(t *testing.T) {
	t.Parallel()
	org := sdk.Organization{Name: "default", IsDefault: true}
	org.ID = uuid.MustParse("66666666-6666-4666-8666-666666666666")
	job := sdk.ProvisionerJob{ID: org.ID, Type: sdk.JobWorkspaceBuild, Status: sdk.JobFailed}
	job.Metadata.TemplateDisplayName = "Docker"
	proxy := sdk.WorkspaceProxyResponse{Token: "the-token"}
	srv := newAPI(t, map[string]any{
		"GET users/me/organizations": []sdk.Organization{org}, "GET organizations/{org}/provisionerjobs": []sdk.ProvisionerJob{job},
		"GET organizations/{org}/provisionerdaemons": []sdk.ProvisionerDaemon{{Name: "rack", Status: sdk.ProvisionerIdle, CurrentJob: &sdk.ProvisionerDaemonJob{TemplateName: "docker"}}},
		"POST workspaceproxies":                      proxy, "GET users/ada": sdk.User{}, "PUT users/ada/status/suspend": sdk.User{},
	})
	at := []string{"--url", srv.url, "--token", "t"}
	for line, want := range map[string]string{
		"provisioner jobs list --initiator me -c id,template~display~name,organization,queue~position": "Docker",
		"provisioner list --show-offline=false --max-age 24h -c name,current~job~template~name":        "docker",
		"workspace-proxy create --name eu --only-token":                                                "the-token",
		"completion --shell bash --print":                                                              "__start_coder",
		"completion zsh":                                                                               "compdef",
	} {
		args := strings.Fields(line)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "~", " ")
		}
		if r := run(t, "", "", append(slices.Clone(at), args...)...); r.fault != nil || !strings.Contains(r.out, want) {
			t.Errorf("%s: %v\n%s%s", line, r.fault, r.out, r.err)
		}
	}
	for _, line := range []string{"completion --shell csh", "workspace-proxy create", "workspace-proxy create eu --name us", "provisioner list --max-age soon"} {
		if r := run(t, "", "", append(slices.Clone(at), strings.Fields(line)...)...); fault.CodeOf(r.fault) != fault.Invalid {
			t.Errorf("%s: got %v", line, r.fault)
		}
	}
}

// TestStockNames compares testdata/stock.txt with the program: flags exist, tables have the columns, and what -o json
// prints has the fields.
func TestStockNames(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("testdata/stock.txt")
	if err != nil {
		t.Fatal(err)
	}
	root, seen := New(), map[string]int{}
	for line := range strings.Lines(string(list)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		head, tail, _ := strings.Cut(line, ":")
		kind, path, _ := strings.Cut(head, " ")
		seen[kind]++
		cmd, rest, err := root.Find(strings.Fields(path))
		if err != nil || len(rest) > 0 {
			t.Errorf("coder %s: no such command", path)
			continue
		}
		names := strings.FieldsFunc(tail, func(r rune) bool { return r == ',' })
		for i := range names {
			names[i] = strings.TrimSpace(names[i])
		}
		switch kind {
		case "flags":
			for _, name := range names {
				if cmd.Flags().Lookup(strings.TrimPrefix(name, "--")) == nil {
					t.Errorf("coder %s has no flag %s", path, name)
				}
			}
		case "columns":
			f := cmd.Flags().Lookup("column")
			if f == nil {
				t.Errorf("coder %s has no flag --column", path)
				continue
			}
			_, known, _ := strings.Cut(f.Usage, ", of: ")
			known, _, _ = strings.Cut(known, " (")
			for _, name := range names {
				if !slices.Contains(strings.Split(known, ", "), name) {
					t.Errorf("coder %s has no column %q; it has %s", path, name, known)
				}
			}
		case "json":
			got := stockJSON(t, path)
			for _, name := range names {
				if !hasField(got, strings.Split(name, ".")) {
					t.Errorf("coder %s -o json has no field %s: %v", path, name, got)
				}
			}
		default:
			t.Errorf("unknown kind %q", kind)
		}
	}
	for kind, least := range map[string]int{"flags": 30, "columns": 10, "json": 14} {
		if seen[kind] < least {
			t.Errorf("the list has only %d lines of %s", seen[kind], kind)
		}
	}
}

// stockJSON returns what a command prints with -o json, of a list its first element.
func stockJSON(t *testing.T, path string) any {
	t.Helper()
	ws := openWorkspace()
	answers := map[string]any{
		"GET users/me/organizations": []sdk.Organization{sample[sdk.Organization]()}, "GET users/me": sample[sdk.User](),
		"GET users/me/roles": sample[sdk.UserRoles](), "GET users/ada/organizations": []sdk.Organization{sample[sdk.Organization]()},
		"GET templates": []sdk.Template{docker()}, "GET users/me/workspace/lab": ws, "GET templateversions/" + sampleID: sample[sdk.TemplateVersion](),
		"GET workspaces/" + ws.ID.String() + "/external-agent/main/credentials": sample[sdk.ExternalAgentCredentials](),
	}
	args := strings.Fields(path)
	if p, ok := printed[path]; ok {
		answers["GET "+p.path] = p.answer
		args = append(args, strings.Fields(p.args)...)
	} else if path == "external-workspaces agent-instructions" {
		args = append(args, "lab")
	}
	r := run(t, "", "", append([]string{"--url", newAPI(t, answers).url, "--token", "t", "-o", "json"}, args...)...)
	var got any
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.fault != nil {
		t.Fatalf("coder %s: %v, %v: %s", path, err, r.fault, r.out)
	}
	if list, ok := got.([]any); ok && len(list) > 0 {
		return list[0]
	}
	return got
}

// hasField reports whether the path leads from an object to a field.
func hasField(of any, path []string) bool {
	for _, name := range path {
		object, ok := of.(map[string]any)
		if !ok {
			return false
		}
		if of, ok = object[name]; !ok {
			return false
		}
	}
	return true
}
