package coderd_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// clientWorld is a server with a running workspace of ann, and the names that replays use.
func clientWorld(t *testing.T) (*coderdtest.Server, map[string]string) {
	t.Helper()
	s := coderdtest.New(t)
	template := s.Template("process", nil)
	ws, agent := s.Running("ann", "dev", template.ID)
	return s, map[string]string{
		"org": s.Org.String(), "template": template.ID.String(), "version": template.ActiveVersionID.String(), "ws": ws.ID.String(),
		"build": ws.LatestBuild.ID.String(), "agent": agent.String(), "ann": s.User("ann").String(), "bob": s.User("bob").String(), "olga": s.User("olga").String(),
		"url": s.URL.String(), "program": buildinfo.Version(), "none": "00000000-0000-0000-0000-000000000000",
	}
}

// TestVSCode sends what the plugin of VS Code asks the server for, in its order: it signs in, downloads the program, shows the user's
// workspaces, and opens one. Each answer of another status is a message to the user or a line in the plugin's log.
func TestVSCode(t *testing.T) {
	t.Parallel()
	s, known := clientWorld(t)
	replay(t, s, known, []step{
		{as: "nobody", method: "GET", path: "buildinfo", status: 200, want: `{"version":"{program}","dashboard_url":"{url}"}`},
		{as: "nobody", method: "GET", path: "appearance", status: 200, want: `{"announcement_banners":[],"service_banner":{"enabled":false}}`},
		// Without these two it offers to sign in by OAuth2.
		{as: "nobody", method: "GET", path: "/.well-known/oauth-authorization-server", status: 404},
		{as: "nobody", method: "GET", path: "/.well-known/oauth-protected-resource", status: 404},
		{as: "ann", method: "GET", path: "users/me", status: 200, want: `{"id":"{ann}","username":"ann"}`},
		{as: "ann", method: "GET", path: "deployment/ssh", status: 200, want: `{"hostname_prefix":"coder.","ssh_config_options":{}}`},
		{as: "ann", method: "GET", path: "experiments", status: 200, want: `[]`},
		{as: "nobody", method: "GET", path: "/bin/coder-linux-amd64.asc", status: 404, text: "no binary"}, // the plugin asks whether to run it without a signature
		{as: "nobody", method: "GET", path: "/bin/coder-plan9-mips", status: 404, text: "no binary"},

		{as: "ann", method: "GET", path: "workspaces?q=owner%3Ame", status: 200, want: `{"count":1}`},
		{as: "ann", method: "GET", path: "workspaces?q=", status: 200, want: `{"count":1}`},
		{as: "ann", method: "GET", path: "workspaces?q=shared_with_user%3A{ann}", status: 200, want: `{"workspaces":[],"count":0}`},
		{as: "bob", method: "GET", path: "workspaces?q=owner%3Aann", status: 200, want: `{"workspaces":[],"count":0}`},
		{as: "ann", method: "GET", path: "tasks?q=owner%3Ame", status: 200, want: `{"tasks":[],"count":0}`},
		{as: "ann", method: "POST", path: "tasks/me", body: `{"template_version_id":"{version}","input":"Fix it"}`, status: 404, text: "no tasks"},
		{as: "ann", method: "GET", path: "templates", status: 200},
		{as: "ann", method: "GET", path: "templates/{template}", status: 200, want: `{"id":"{template}"}`},
		{as: "ann", method: "GET", path: "templateversions/{version}", status: 200, want: `{"id":"{version}","archived":false}`},
		{as: "ann", method: "GET", path: "templateversions/{version}/presets", status: 200, want: `[]`},
		{as: "ann", method: "GET", path: "templateversions/{version}/rich-parameters", status: 200},

		{as: "ann", method: "GET", path: "users/ann/workspace/dev?include_deleted=true", status: 200, want: `{"id":"{ws}","latest_build":{"status":"running","job":{"status":"succeeded"}}}`},
		{as: "ann", method: "GET", path: "workspaces/{ws}", status: 200, want: `{"id":"{ws}","owner_name":"ann"}`},
		{as: "bob", method: "GET", path: "workspaces/{ws}", status: 404},
		{as: "ann", method: "GET", path: "workspacebuilds/{build}/logs", status: 200},
		{as: "ann", method: "GET", path: "workspaceagents/{agent}/logs", status: 200},
		{as: "ann", method: "GET", path: "workspaceagents/{agent}/containers", status: 200, want: `{"containers":[],"devcontainers":[]}`},
		{as: "bob", method: "GET", path: "workspaceagents/{agent}/containers", status: 404},
		{as: "ann", method: "GET", path: "notifications/inbox", status: 200, want: `{"notifications":[],"unread_count":0}`},
		{as: "ann", method: "PUT", path: "workspaces/{ws}/dormant", body: `{"dormant":false}`, status: 200},
		{as: "ann", method: "POST", path: "workspaces/{ws}/builds", body: `{"transition":"stop","reason":"vscode_connection"}`, status: 201, want: `{"transition":"stop","reason":"vscode_connection"}`},
	})
}

// TestJetBrains sends what Toolbox and Gateway ask the server for. Their readers have closed sets of values and fail on null lists.
func TestJetBrains(t *testing.T) {
	t.Parallel()
	s, known := clientWorld(t)
	var filters []step
	for q, count := range map[string]string{
		"owner:me": "1", "": "1", "owner:me status:running": "1", "owner:me status:failed": "0", "owner:me outdated:true": "0", "owner:me shared:true": "0", "owner:me dormant:true": "0",
	} {
		path := "workspaces?q=" + url.QueryEscape(q)
		filters = append(filters, step{as: "ann", method: "GET", path: path, status: 200, want: `{"count":` + count + `}`})
	}
	replay(t, s, known, append(filters, []step{
		{as: "ann", method: "GET", path: "users/me", status: 200},
		{as: "ann", method: "GET", path: "workspaces/{ws}", status: 200, want: `{"latest_build":{"status":"running"}}`},
		{as: "ann", method: "GET", path: "users/ann/workspace/dev", status: 200, want: `{"id":"{ws}"}`},
		{as: "ann", method: "GET", path: "templateversions/{version}/resources", status: 200},
		{as: "ann", method: "POST", path: "workspaces/{ws}/builds", body: `{"transition":"stop","reason":"jetbrains_connection"}`, status: 201, want: `{"reason":"jetbrains_connection"}`},
	}...))
}

// stockCommands are the requests that commands of the stock CLI send, in order.
var stockCommands = map[string][]step{
	"list": {
		{as: "ann", method: "GET", path: "workspaces?q=owner%3Ame+has-agent%3Aconnecting", status: 200, want: `{"count":1}`},
		{as: "ann", method: "GET", path: "workspaces?q=owner%3Ame+has-agent%3Aconnected", status: 200, want: `{"count":0}`},
		{as: "ann", method: "GET", path: "workspaces?q=has-agent%3Asleeping", status: 400, text: "connecting, connected"},
		{as: "ann", method: "GET", path: "workspaces?q=healthy%3Atrue", status: 200, want: `{"count":1}`},
		{as: "ann", method: "GET", path: "workspaces?q=healthy%3Afalse", status: 200, want: `{"count":0}`},
		{as: "ann", method: "GET", path: "workspaces?q=last_used_after%3A2020-01-01", status: 200, want: `{"count":1}`},
		{as: "ann", method: "GET", path: "workspaces?q=last_used_before%3A%222020-01-01T00:00:00Z%22", status: 200, want: `{"count":0}`},
		{as: "ann", method: "GET", path: "workspaces?q=last_used_before%3Ayesterday", status: 400, text: "2026-11-23"},
		{as: "ann", method: "GET", path: "workspaces?q=param%3Anope", status: 200, want: `{"count":0}`},
		{as: "ann", method: "GET", path: "workspaces?q=organization%3Adefault", status: 200, want: `{"count":1}`},
		{as: "ann", method: "GET", path: "workspaces?q=has_external_agent%3Atrue", status: 200, want: `{"count":0,"workspaces":[]}`},
		{as: "ann", method: "GET", path: "workspaces?q=has-ai-task%3Afalse", status: 200, want: `{"count":1}`},
		{as: "ann", method: "GET", path: "workspaces?q=colour%3Ared", status: 400, text: "does not support colour"},
	},
	"show, logs, schedule": {
		{as: "ann", method: "GET", path: "workspaceagents/{agent}/containers", status: 200},
		{as: "ann", method: "PUT", path: "workspaces/{ws}/ttl", body: `{"ttl_ms":28800000}`, status: 204},
		{as: "ann", method: "PUT", path: "workspaces/{ws}/autostart", body: `{"schedule":"CRON_TZ=Europe/Berlin 30 9 * * 1-5"}`, status: 204},
		{as: "ann", method: "PUT", path: "workspaces/{ws}/autoupdates", body: `{"automatic_updates":"always"}`, status: 204},
		{as: "ann", method: "PUT", path: "workspaces/{ws}/favorite", status: 204},
		{as: "ann", method: "DELETE", path: "workspaces/{ws}/favorite", status: 204},
		{as: "ann", method: "PATCH", path: "workspaces/{ws}", body: `{"name":"dev2"}`, status: 204},
		{as: "ann", method: "GET", path: "workspacebuilds/{build}/state", status: 403},
		{method: "GET", path: "workspacebuilds/{build}/state", status: 200},
		{as: "ann", method: "GET", path: "workspaces/{ws}/acl", status: 200, want: `{"users":[],"group":[]}`},
	},
	"ssh, ping, port-forward, speedtest, netcheck": {
		{as: "ann", method: "GET", path: "workspaceagents/{agent}/connection", status: 200},
		{as: "ann", method: "GET", path: "workspaceagents/connection", status: 404, text: "{url}/bin/coder-"},
		{as: "ann", method: "GET", path: "workspaceagents/{agent}/coordinate", status: 404, text: "{url}/bin/coder-"},
		{as: "ann", method: "GET", path: "derp-map", status: 404, text: "this server's own CLI"},
		{as: "ann", method: "GET", path: "tailnet", status: 404, text: "this server's own CLI"},
		{method: "GET", path: "organizations/{org}/provisionerdaemons/serve", status: 404, text: "coder provisioner start"},
	},
	"templates": {
		{as: "tom", method: "POST", path: "organizations/{org}/templateversions", body: `{"name":"v2","template_id":"{template}","storage_method":"file","file_id":"{file}","provisioner":"echo","tags":{},"user_variable_values":null}`, status: 201, keep: "v2", want: `{"archived":false}`},
		{as: "tom", method: "GET", path: "templates/{template}/versions?include_archived=false&after_id={none}&limit=0&offset=0", status: 200},
		{as: "tom", method: "POST", path: "templateversions/{v2}/archive", status: 409, text: "has not finished"},
		{as: "tom", method: "PATCH", path: "templateversions/{v2}/cancel", status: 200},
		{as: "tom", method: "POST", path: "templates/{template}/versions/archive", body: `{"all":false}`, status: 200, want: `{"template_id":"{template}","archived_ids":["{v2}"]}`},
		{as: "tom", method: "POST", path: "templates/{template}/versions/archive", body: `{"all":true}`, status: 200, want: `{"archived_ids":[]}`},
		{as: "tom", method: "GET", path: "templateversions/{v2}", status: 200, want: `{"archived":true}`},
		{as: "tom", method: "POST", path: "templateversions/{v2}/unarchive", status: 200},
		{as: "tom", method: "GET", path: "templateversions/{v2}", status: 200, want: `{"archived":false}`},
		{as: "tom", method: "POST", path: "templateversions/{version}/archive", status: 409, text: "is the active version"},
		{as: "ann", method: "POST", path: "templateversions/{v2}/archive", status: 403},
		{as: "ann", method: "POST", path: "templates/{template}/versions/archive", body: `{"all":true}`, status: 403},
		{as: "ann", method: "GET", path: "templates?q=author%3Aolga", status: 200},
		{as: "ann", method: "GET", path: "templates?q=deprecated%3Amaybe", status: 400, text: "true or false"},
		{as: "ann", method: "GET", path: "templates?q=has-ai-task%3Atrue", status: 200, want: `[]`},
		{as: "ann", method: "GET", path: "templates/examples", status: 200},
	},
	"tokens": {
		{as: "ann", method: "GET", path: "users/me/keys/tokens/tokenconfig", status: 200},
		{as: "ann", method: "POST", path: "users/me/keys/tokens", body: `{"lifetime":3600000000000,"token_name":"ci","scope":"all"}`, status: 201},
		{as: "ann", method: "GET", path: "users/me/keys/tokens?include_all=false&include_expired=true", status: 200},
		{as: "ann", method: "GET", path: "users/me/keys/tokens/ci", status: 200, want: `{"token_name":"ci"}`},
		{as: "bob", method: "GET", path: "users/ann/keys/tokens/ci", status: 404},
	},
	"users": {
		{method: "GET", path: "users?q=created_after%3A2020-01-01&limit=2", status: 200},
		{method: "GET", path: "users?q=created_before%3A2020-01-01", status: 200, want: `{"users":[],"count":0}`},
		{method: "GET", path: "users?q=last_seen_after%3Asoon", status: 400, text: "must be a date"},
		{method: "GET", path: "users?q=status%3Aactive+role%3Aowner", status: 200, want: `{"count":1}`},
		{as: "ann", method: "POST", path: "users/validate-password", body: `{"password":"short"}`, status: 200, want: `{"valid":false}`},
		{as: "ann", method: "POST", path: "users/validate-password", body: `{"password":"Correct-Horse-9-Battery"}`, status: 200, want: `{"valid":true,"details":""}`},
		{as: "ann", method: "GET", path: "users/me/login-type", status: 200, want: `{"login_type":"password"}`},
	},
	"organizations, groups, provisioners": {
		{as: "ann", method: "GET", path: "organizations", status: 200},
		{method: "GET", path: "organizations/{org}/members/", status: 200},
		{method: "GET", path: "organizations/{org}/paginated-members?limit=1", status: 200},
		{method: "GET", path: "organizations/{org}/members/roles", status: 200},
		{method: "GET", path: "organizations/{org}/groups", status: 200},
		{method: "GET", path: "groups", status: 200},
		{method: "GET", path: "organizations/{org}/provisionerdaemons?limit=50", status: 200},
		{method: "GET", path: "organizations/{org}/provisionerjobs?limit=50&initiator=me", status: 200},
		{method: "GET", path: "organizations/{org}/provisionerkeys", status: 200},
		{method: "GET", path: "settings/idpsync/organization", status: 200},
	},
	"what this server does not have": {
		{method: "GET", path: "licenses", status: 200, want: `[]`},
		{method: "POST", path: "licenses", body: `{"license":"x"}`, status: 404, text: "needs no license"},
		{as: "ann", method: "GET", path: "experiments/available", status: 200, want: `{"safe":[]}`},
		{as: "ann", method: "GET", path: "updatecheck", status: 200, want: `{"current":true,"version":"{program}"}`},
		{as: "ann", method: "GET", path: "tasks", status: 200, want: `{"tasks":[],"count":0}`},
		{as: "ann", method: "GET", path: "tasks/me/x", status: 404, text: "no tasks"},
		{method: "PUT", path: "prebuilds/settings", body: `{"reconciliation_paused":true}`, status: 200, want: `{"reconciliation_paused":true}`},
		{method: "GET", path: "prebuilds/settings", status: 200, want: `{"reconciliation_paused":true}`},
		{as: "ann", method: "GET", path: "prebuilds/settings", status: 403},
		{as: "ann", method: "PUT", path: "prebuilds/settings", body: `{"reconciliation_paused":false}`, status: 403},
		{as: "nobody", method: "GET", path: "tasks", status: 401},
	},
	"support bundle": {
		{method: "POST", path: "authcheck", body: `{"checks":{"read":{"object":{"resource_type":"workspace","owner_id":"{ann}"},"action":"read"}}}`, status: 200, want: `{"read":true}`},
		{method: "GET", path: "debug/health", status: 200},
		{method: "GET", path: "entitlements", status: 200},
		{method: "GET", path: "replicas", status: 200},
	},
	"notifications, secrets, sharing": {
		{method: "PUT", path: "notifications/settings", body: `{"notifier_paused":true}`, status: 200},
		{as: "ann", method: "PUT", path: "notifications/settings", body: `{"notifier_paused":false}`, status: 403},
		{method: "POST", path: "notifications/test", status: 409, text: "coder notifications resume"},
		{method: "PUT", path: "notifications/settings", body: `{"notifier_paused":false}`, status: 200},
		{method: "POST", path: "notifications/test", status: 204},
		{as: "ann", method: "GET", path: "users/me/secrets", status: 200, want: `[]`},
		{as: "ann", method: "PATCH", path: "workspaces/{ws}/acl", body: `{"user_roles":{"{bob}":"use"}}`, status: 204},
		{as: "bob", method: "GET", path: "workspaces/{ws}", status: 200},
		{as: "ann", method: "PATCH", path: "workspaces/{ws}/acl", body: `{"user_roles":{"{bob}":""}}`, status: 204},
		{as: "bob", method: "GET", path: "workspaces/{ws}", status: 404},
	},
}

// TestStockCLI sends what the stock command line asks for, command by command, without those that need the mesh: these get a sentence
// that names the program to use.
func TestStockCLI(t *testing.T) {
	t.Parallel()
	for name, steps := range stockCommands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, known := clientWorld(t)
			known["file"] = s.File("tom").String()
			replay(t, s, known, steps)
		})
	}
}

// TestNewerClient sends requests as a client of a later release may: fields that this server does not know are ignored, and for values that it
// does not know it says which it knows.
func TestNewerClient(t *testing.T) {
	t.Parallel()
	s, known := clientWorld(t)
	known["file"] = s.File("tom").String()
	const more = `,"invented_since":{"colour":["blue"]}}`
	replay(t, s, known, []step{
		{method: "POST", path: "users", body: `{"username":"newer","email":"newer@example.com","password":"Correct-Horse-9-Battery","organization_ids":["{org}"]` + more, status: 201, want: `{"username":"newer"}`},
		{as: "ann", method: "PUT", path: "workspaces/{ws}/ttl", body: `{"ttl_ms":28800000` + more, status: 204},
		{as: "ann", method: "PATCH", path: "workspaces/{ws}", body: `{"name":"dev2"` + more, status: 204},
		{as: "ann", method: "POST", path: "templateversions/{version}/dynamic-parameters/evaluate", body: `{"id":1,"inputs":{}` + more, status: 200, want: `{"id":1}`},
		{as: "tom", method: "POST", path: "organizations/{org}/templateversions", body: `{"template_id":"{template}","storage_method":"file","file_id":"{file}","provisioner":"terraform"` + more, status: 201},
		{as: "ann", method: "POST", path: "workspaces/{ws}/builds", body: `{"transition":"stop","reason":"sunset"` + more, status: 400, text: "reason"},
		{as: "ann", method: "POST", path: "workspaces/{ws}/builds", body: `{"transition":"hibernate"` + more, status: 400, text: "must be start, stop or delete"},
		{as: "ann", method: "PUT", path: "workspaces/{ws}/autoupdates", body: `{"automatic_updates":"sometimes"` + more, status: 400, text: "must be always or never"},
		{as: "ann", method: "POST", path: "workspaces/{ws}/port-share", body: `{"agent_name":"main","port":8080,"share_level":"planet"` + more, status: 400, text: "authenticated"},
		{method: "POST", path: "users", body: `{"username":"later","email":"later@example.com","login_type":"telepathy"` + more, status: 400, text: "password"},
		{as: "ann", method: "POST", path: "workspaces/{ws}/builds", body: `{"transition":"stop"` + more, status: 201, want: `{"transition":"stop"}`},
	})
}

// TestPreviousVersion checks which version precedes another, archived ones included, and that only those who may use the template learn it.
func TestPreviousVersion(t *testing.T) {
	t.Parallel()
	s, known := clientWorld(t)
	known["file"] = s.File("tom").String()
	const version = `{"name":"%s","template_id":"{template}","storage_method":"file","file_id":"{file}","provisioner":"terraform"}`
	const of = "organizations/default/templates/process/versions/"
	first, err := s.As("olga").TemplateVersion(t.Context(), uuid.MustParse(known["version"]))
	if err != nil {
		t.Fatal(err)
	}
	replay(t, s, known, []step{
		{as: "tom", method: "POST", path: "organizations/{org}/templateversions", body: fmt.Sprintf(version, "second"), status: 201, keep: "second"},
		{as: "tom", method: "PATCH", path: "templateversions/{second}/cancel", status: 200},
		{as: "tom", method: "POST", path: "templateversions/{second}/archive", status: 200},
		{as: "tom", method: "POST", path: "organizations/{org}/templateversions", body: fmt.Sprintf(version, "third"), status: 201},
		{as: "ann", method: "GET", path: of + "third/previous", status: 200, want: `{"id":"{second}","name":"second","archived":true}`},
		{as: "ann", method: "GET", path: of + "second/previous", status: 200, want: `{"id":"{version}"}`},
		{as: "ann", method: "GET", path: of + first.Name + "/previous", status: 404, text: "is the first of its template"},
		{as: "ann", method: "GET", path: of + "fourth/previous", status: 404},
		{as: "nobody", method: "GET", path: of + "third/previous", status: 401},
		{as: "tom", method: "PATCH", path: "templates/{template}/acl", body: `{"group_perms":{"{org}":""}}`, status: 200},
		{as: "ann", method: "GET", path: of + "third/previous", status: 404},
	})
}

// TestDaemonsOfKeys checks that each key comes with the provisioners that joined with it, and with no others.
func TestDaemonsOfKeys(t *testing.T) {
	t.Parallel()
	s, known := clientWorld(t)
	for _, name := range []string{"idle", "used"} {
		known[name] = uuid.NewString()
		s.Exec(`INSERT INTO provisioner_keys (id, organization_id, name, secret_hash, created_by) VALUES ($1, $2, $3, $4, $5)`, known[name], s.Org, name, []byte(name), s.User("olga"))
	}
	s.Exec(`INSERT INTO provisioner_daemons (id, organization_id, name, version, tags, key_id, key_name) VALUES
		(gen_random_uuid(), $1, 'builder', 'v1', '{"region": "eu"}', $2, 'used'), (gen_random_uuid(), $1, 'laptop', 'v1', '{}', NULL, 'user-auth')`, s.Org, known["used"])
	r := httptest.NewRequest("GET", "/api/v2/organizations/default/provisionerkeys/daemons", nil)
	r.Header.Set(sdk.SessionHeader, s.Token("olga"))
	w := httptest.NewRecorder()
	s.Handler.ServeHTTP(w, r)
	var keys []sdk.ProvisionerKeyDaemons
	if err := json.Unmarshal(w.Body.Bytes(), &keys); err != nil || w.Code != 200 {
		t.Fatalf("%d %s, %v", w.Code, w.Body, err)
	}
	var got []string
	for _, k := range keys {
		got = append(got, k.Key.Name)
		for _, d := range k.Daemons {
			got = append(got, fmt.Sprintf("%s %s %v", d.Name, d.Status, d.Tags))
		}
	}
	if diff := cmp.Diff([]string{"idle", "used", "builder offline map[region:eu]"}, got); diff != "" || !strings.Contains(w.Body.String(), `"daemons":[]`) {
		t.Errorf("%s\n%s", diff, w.Body)
	}
	replay(t, s, known, []step{
		{as: "ann", method: "GET", path: "organizations/{org}/provisionerkeys/daemons", status: 403},
		{as: "nobody", method: "GET", path: "organizations/{org}/provisionerkeys/daemons", status: 401},
	})
}

// TestSmallAnswers checks what the pages and programs of other servers read beside the large lists.
func TestSmallAnswers(t *testing.T) {
	t.Parallel()
	s, known := clientWorld(t)
	replay(t, s, known, []step{
		{as: "ann", method: "GET", path: "workspaces/{ws}/timings", status: 200, want: `{"agent_script_timings":[]}`},
		{as: "bob", method: "GET", path: "workspaces/{ws}/timings", status: 404},
		{as: "ann", method: "GET", path: "workspaces/{none}/timings", status: 404},
		{method: "GET", path: "debug/health/settings", status: 200, want: `{"dismissed_healthchecks":[]}`},
		{as: "ann", method: "GET", path: "debug/health/settings", status: 403},
		{as: "ann", method: "GET", path: "organizations/{org}/settings/workspace-sharing", status: 200, want: `{"sharing_disabled":false}`},
		{as: "ann", method: "POST", path: "users/me/webpush/subscription", body: `{"endpoint":"https://push.example.com"}`, status: 404, text: "dispatch-methods"},
		{as: "ann", method: "GET", path: "workspace-quota/me", status: 404, text: "members/{user}/workspace-quota"},
		{as: "ann", method: "GET", path: "workspaceagents/{agent}/startup-logs", status: 404, text: "/logs"},
		{as: "ann", method: "GET", path: "external-auth/github/device", status: 404, text: "no login provider"},
		{as: "ann", method: "GET", path: "ai-gateway/keys", status: 404, text: "no AI gateway"},
		{as: "ann", method: "POST", path: "chats/x/messages", status: 404, text: "neither AI chats nor"},
		{as: "ann", method: "GET", path: "workspaceagents/me/manifest", status: 404, text: "own program"},
		{as: "ann", method: "GET", path: "ai-gateways", status: 404, text: "may be newer"},
		{as: "ann", method: "GET", path: "organizations/coder", status: 200, want: `{"name":"default","is_default":true}`},
		{as: "ann", method: "GET", path: "templateversions/{version}/dynamic-parameters", status: 400, text: "dynamic-parameters/evaluate"},
	})
}

// TestWrongMethods checks that a path which exists names the methods that it supports.
func TestWrongMethods(t *testing.T) {
	t.Parallel()
	s, known := clientWorld(t)
	replay(t, s, known, []step{
		{method: "DELETE", path: "buildinfo", status: 405, header: "Allow: GET"},
		{method: "PUT", path: "templates/{template}/versions", status: 405, header: "Allow: GET, PATCH"},
		{as: "nobody", method: "POST", path: "workspaces/{ws}", status: 405, header: "Allow: GET, PATCH"},
		{method: "GET", path: "no-such-thing", status: 404},
	})
}

// TestRoutesOfClients compares docs/routes.md with the server.
func TestRoutesOfClients(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	text, err := os.ReadFile("../docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	wildcard := regexp.MustCompile(`\{[^}]*\}`)
	have := map[string]bool{}
	for _, route := range s.Mux.Routes() {
		have[wildcard.ReplaceAllString(route.Pattern, "{}")] = true
	}
	counts := map[string]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| `?([A-Z]+) ([^`|]+?)`? \\| (Yes|Refused|No) \\| (.*)\\|$").FindAllStringSubmatch(string(text), -1) {
		method, path, here, why := row[1], row[2], row[3], strings.TrimSpace(row[4])
		counts[here]++
		if exists := have[wildcard.ReplaceAllString(method+" /api/v2/"+path, "{}")]; exists != (here != "No") {
			t.Errorf("%s %s: the table says %s, and the server has it: %t", method, path, here, exists)
		}
		if (why == "") == (here == "No") {
			t.Errorf("%s %s: %s, because %q", method, path, here, why)
		}
		if here == "Refused" {
			concrete := wildcard.ReplaceAllString(path, "00000000-0000-0000-0000-000000000001")
			replay(t, s, map[string]string{}, []step{{method: method, path: concrete, status: 404}})
		}
	}
	if want := fmt.Sprintf("%d work, %d are refused, and %d do not exist", counts["Yes"], counts["Refused"], counts["No"]); !strings.Contains(string(text), want) || counts["Yes"] < 200 {
		t.Errorf("the table has: %s", want)
	}
}
