package cli

import (
	"encoding/json"
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
