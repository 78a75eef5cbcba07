package cli

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// ownShapes are the commands with -o json whose result is no object of the API, and where their shape is tested.
var ownShapes = map[string]string{
	"doctor": "findings about this machine: TestDoctor", "ping": "measurements: e2e", "speedtest": "measurements, in the shape that editors read: e2e",
	"connect status": "what this machine reaches: e2e TestConnect",
	"stat":           "this workspace's use of resources: TestStat", "stat cpu": "the same", "stat disk": "the same", "stat mem": "the same",
	"users status-counts": "days: TestUserStatusCounts",
	"exp sync status":     "a unit of this workspace", "exp sync list": "units of this workspace", "version": "this program: TestVersion", "whoami": "the session: TestWhoami",
	"external-workspaces agent-instructions": "a command and a token: TestScripts/external", "sharing status": "users and groups in one list: kind, name and role", "task list": "an empty list", "state list": "what builds left of their states: TestScripts/states", "licenses list": "an empty list",
	"update": "with --plan, a plan of the API: TestScripts/plan",
}

// sample returns a T whose fields are all set, to a depth that the commands print.
func sample[T any]() T {
	var v T
	fill(reflect.ValueOf(&v).Elem(), "text", 5)
	return v
}

var sampleTime = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// fill sets everything below v, each text to the given one.
func fill(v reflect.Value, text string, depth int) {
	if depth == 0 || !v.CanSet() {
		return
	}
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(sampleTime))
		return
	case uuid.UUID:
		v.Set(reflect.ValueOf(uuid.MustParse("33333333-3333-4333-8333-333333333333")))
		return
	case json.RawMessage:
		v.SetBytes([]byte(`{"some":"thing"}`))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text, depth-1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), text, depth-1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		element := reflect.New(v.Type().Elem()).Elem()
		fill(element, text, depth-1)
		v.SetMapIndex(reflect.ValueOf(text).Convert(v.Type().Key()), element)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), text, depth-1)
		}
	}
}

// generic returns a value as any client reads it from JSON.
func generic(t *testing.T, v any) any {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// sampleID is the id of sampled objects.
const sampleID = "33333333-3333-4333-8333-333333333333"

func docker() sdk.Template {
	template := sample[sdk.Template]()
	template.Name = "docker"
	return template
}

// printed are the commands that print objects of the API.
var printed = map[string]struct {
	args   string
	path   string // of the API
	answer any
	want   any    // the object, or the list's only one
	extra  string // fields that the API does not have
}{
	"list":                           {"", "workspaces", sdk.WorkspacesResponse{Workspaces: []sdk.Workspace{sample[sdk.Workspace]()}, Count: 1}, sample[sdk.Workspace](), ""},
	"external-workspaces list":       {"", "workspaces", sdk.WorkspacesResponse{Workspaces: []sdk.Workspace{sample[sdk.Workspace]()}, Count: 1}, sample[sdk.Workspace](), ""},
	"show":                           {"dev", "users/me/workspace/dev", sample[sdk.Workspace](), sample[sdk.Workspace](), ""},
	"schedule show":                  {"dev", "users/me/workspace/dev", sample[sdk.Workspace](), sample[sdk.Workspace](), "workspace starts_at starts_next stops_after stops_next"},
	"templates list":                 {"", "templates", []sdk.Template{docker()}, docker(), "Template"},
	"templates versions list":        {"docker", "templates/" + sampleID + "/versions", []sdk.TemplateVersion{sample[sdk.TemplateVersion]()}, sample[sdk.TemplateVersion](), "active TemplateVersion"},
	"templates presets list":         {"docker", "templateversions/" + sampleID + "/presets", []sdk.Preset{sample[sdk.Preset]()}, sample[sdk.Preset](), "TemplatePreset"},
	"prebuilds list":                 {"docker", "templates/" + sampleID + "/prebuilds", []sdk.TemplatePrebuilds{sample[sdk.TemplatePrebuilds]()}, sample[sdk.TemplatePrebuilds](), ""},
	"templates consent list":         {"", "users/me/template-consents", []sdk.TemplateConsent{sample[sdk.TemplateConsent]()}, sample[sdk.TemplateConsent](), ""},
	"users list":                     {"", "users", sdk.UsersResponse{Users: []sdk.User{sample[sdk.User]()}, Count: 1}, sample[sdk.User](), ""},
	"users show":                     {"ada", "users/ada", sample[sdk.User](), sample[sdk.User](), "organization_names"},
	"users oidc-claims":              {"", "users/oidc-claims", sample[sdk.OIDCClaimsResponse](), sample[sdk.OIDCClaimsResponse](), ""},
	"features list":                  {"", "entitlements", sample[sdk.Entitlements](), sample[sdk.Entitlements](), ""},
	"health show":                    {"", "debug/health", sample[sdk.HealthReport](), sample[sdk.HealthReport](), ""},
	"deployment overview":            {"", "deployment/overview", sample[sdk.DeploymentOverview](), sample[sdk.DeploymentOverview](), ""},
	"deployment activity":            {"", "deployment/overview", sample[sdk.DeploymentOverview](), sample[sdk.OverviewDay](), ""},
	"deployment costs":               {"", "deployment/overview", sample[sdk.DeploymentOverview](), sample[sdk.CostOf](), ""},
	"deployment settings":            {"", "deployment/config", sample[sdk.DeploymentConfig](), sample[sdk.DeploymentOption](), ""},
	"tokens list":                    {"", "users/me/keys/tokens", []sdk.APIKey{sample[sdk.APIKey]()}, sample[sdk.APIKey](), ""},
	"tokens view":                    {"abcdefghij", "users/me/keys/abcdefghij", sample[sdk.APIKey](), sample[sdk.APIKey](), ""},
	"sessions list":                  {"", "users/me/sessions", []sdk.UserSession{sample[sdk.UserSession]()}, sample[sdk.UserSession](), ""},
	"organizations list":             {"", "organizations", []sdk.Organization{sample[sdk.Organization]()}, sample[sdk.Organization](), ""},
	"organizations show":             {"me", "users/me/organizations", []sdk.Organization{sample[sdk.Organization]()}, sample[sdk.Organization](), ""},
	"organizations members list":     {"", "organizations/" + sampleID + "/members", []sdk.OrganizationMember{sample[sdk.OrganizationMember]()}, sample[sdk.OrganizationMember](), ""},
	"organizations invitations list": {"", "users/me/invitations", []sdk.OrganizationInvitation{sample[sdk.OrganizationInvitation]()}, sample[sdk.OrganizationInvitation](), ""},
	"organizations roles show":       {"", "organizations/" + sampleID + "/members/roles", []sdk.AssignableRole{sample[sdk.AssignableRole]()}, sample[sdk.AssignableRole](), ""},
	"groups list":                    {"", "groups", []sdk.Group{sample[sdk.Group]()}, sample[sdk.Group](), ""},
	"secret list":                    {"", "users/me/secrets", []sdk.UserSecret{sample[sdk.UserSecret]()}, sample[sdk.UserSecret](), ""},
	"ssh-key list":                   {"", "users/me/ssh-keys", []sdk.UserSSHKey{sample[sdk.UserSSHKey]()}, sample[sdk.UserSSHKey](), ""},
	"devices list":                   {"", "users/me/devices", []sdk.UserDevice{sample[sdk.UserDevice]()}, sample[sdk.UserDevice](), ""},
	"webhooks list":                  {"", "webhooks", []sdk.Webhook{sample[sdk.Webhook]()}, sample[sdk.Webhook](), ""},
	"webhooks deliveries":            {"text", "webhooks/" + sampleID + "/deliveries", []sdk.WebhookDelivery{sample[sdk.WebhookDelivery]()}, sample[sdk.WebhookDelivery](), ""},
	"audit list":                     {"", "audit", sdk.AuditLogsResponse{AuditLogs: []sdk.AuditLog{sample[sdk.AuditLog]()}, Count: 1}, sample[sdk.AuditLog](), ""},
	"audit connections":              {"", "connectionlog", sdk.ConnectionLogsResponse{ConnectionLogs: []sdk.ConnectionLog{sample[sdk.ConnectionLog]()}, Count: 1}, sample[sdk.ConnectionLog](), ""},
	"wsproxy ls":                     {"", "workspaceproxies", sdk.Regions[sdk.WorkspaceProxy]{Regions: []sdk.WorkspaceProxy{sample[sdk.WorkspaceProxy]()}}, sample[sdk.WorkspaceProxy](), ""},
	"provisioner list":               {"", "organizations/" + sampleID + "/provisionerdaemons", []sdk.ProvisionerDaemon{sample[sdk.ProvisionerDaemon]()}, sample[sdk.ProvisionerDaemon](), "organization_name"},
	"provisioner jobs list":          {"", "organizations/" + sampleID + "/provisionerjobs", []sdk.ProvisionerJob{sample[sdk.ProvisionerJob]()}, sample[sdk.ProvisionerJob](), "organization_name"},
	"provisioner keys list":          {"", "organizations/" + sampleID + "/provisionerkeys", []sdk.ProvisionerKey{sample[sdk.ProvisionerKey]()}, sample[sdk.ProvisionerKey](), ""},
}

// TestJSONIsTheAPIs: with -o json, each command that prints objects of the API prints them whole, with the API's names, so that what reads
// the API reads the command. Every command with that flag is here, or says what else it prints.
func TestJSONIsTheAPIs(t *testing.T) {
	t.Parallel()
	answers := map[string]any{
		"GET users/me/organizations": []sdk.Organization{sample[sdk.Organization]()},
		"GET templates":              []sdk.Template{docker()},
	}
	one := map[string]bool{"show": true, "users show": true, "features list": true, "health show": true, "users oidc-claims": true, "deployment overview": true} // they print an object instead of a list
	for _, name := range withJSON(New(), "") {
		_, other := ownShapes[name]
		if _, tested := printed[name]; tested == other {
			t.Errorf("coder %s -o json prints an object of the API: %t, its own: %t", name, tested, other)
		}
	}
	for name, tt := range printed {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := maps.Clone(answers)
			switch name { // what they look up first
			case "templates presets list":
				all["GET templateversions/"+sampleID] = sample[sdk.TemplateVersion]()
			case "users show":
				all["GET users/ada/organizations"] = []sdk.Organization{sample[sdk.Organization]()}
			case "webhooks deliveries":
				all["GET webhooks"] = []sdk.Webhook{sample[sdk.Webhook]()}
			case "tokens view":
				all["GET users/me/keys/tokens"] = []sdk.APIKey{}
			}
			all["GET "+tt.path] = tt.answer
			srv := newAPI(t, all)
			args := slices.Concat([]string{"--url", srv.url, "--token", "t"}, strings.Fields(name), strings.Fields(tt.args), []string{"-o", "json"})
			r := run(t, "", "", args...)
			if r.fault != nil {
				t.Fatalf("%v; calls %q", r.fault, srv.calls)
			}
			var got any
			if err := json.Unmarshal([]byte(r.out), &got); err != nil {
				t.Fatalf("%v: %s", err, r.out)
			}
			if !one[name] {
				list, ok := got.([]any)
				if !ok || len(list) != 1 {
					t.Fatalf("got %s, want a list of one", r.out)
				}
				got = list[0]
			}
			for _, field := range strings.Fields(tt.extra) {
				value, has := got.(map[string]any)[field]
				if !has {
					t.Errorf("the field %s is missing", field)
				}
				if diff := cmp.Diff(generic(t, tt.want), value); unicode.IsUpper(rune(field[0])) && diff != "" { // the whole object, where Coder has it
					t.Errorf("%s (-API +command):\n%s", field, diff)
				}
				delete(got.(map[string]any), field)
			}
			if diff := cmp.Diff(generic(t, tt.want), got); diff != "" {
				t.Errorf("(-API +command):\n%s", diff)
			}
		})
	}
}

// withJSON returns the commands below cmd that have the flag --output, as users type them.
func withJSON(cmd *cobra.Command, path string) (names []string) {
	if f := cmd.Flags().Lookup("output"); f != nil && strings.Contains(f.Usage, "json") {
		names = append(names, path)
	}
	for _, sub := range cmd.Commands() {
		names = append(names, withJSON(sub, strings.TrimSpace(path+" "+sub.Name()))...)
	}
	return names
}
