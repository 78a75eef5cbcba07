package result

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/coder/terraform-provider-coder/v2/provider"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	"google.golang.org/protobuf/proto"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

var update = flag.Bool("update", false, "write docs/templates-reference.md")

const referenceIntro = `# The coder provider

Templates use the Terraform provider ` + "`coder/coder`" + `, which is built into provisioners: they ignore the ` + "`version`" + ` that a template asks for. This page lists all of its
resources and data sources, with what this server does with each attribute. What has no effect is reported in the log of the import, with file and line.

Generated from the provider's schema. Regenerate it with ` + "`go test ./provisionerd/terraform/result -run TestReference -update`" + `. An attribute is honored if the server learns
of a change of its value; the tests ` + "`TestEveryFieldArrives`" + ` check that users or agents see the difference.
The last column names the test that shows the effect itself: in the shell of a workspace, on a page, or in a build.
`

// Ids in examples.
const (
	mainAgent  = "11111111-1111-4111-8111-111111111111"
	otherAgent = "22222222-2222-4222-8222-222222222222"
	container  = "33333333-3333-4333-8333-333333333333"
	inside     = "44444444-4444-4444-8444-444444444444"
)

// examples has an object of each kind, in which every attribute that this server reads has a value.
var examples = map[string]string{
	"coder_agent": `{
		"id": "` + mainAgent + `", "token": "t", "os": "linux", "arch": "amd64", "auth": "aws-instance-identity", "api_key_scope": "all", "dir": "/src", "env": {"A": "1"},
		"startup_script": "up", "shutdown_script": "down", "startup_script_behavior": "blocking", "motd_file": "/etc/motd",
		"troubleshooting_url": "https://example.com", "connection_timeout": 60, "order": 1,
		"display_apps": [{"vscode": true, "vscode_insiders": false, "web_terminal": true, "ssh_helper": true, "port_forwarding_helper": true}],
		"metadata": [{"key": "k", "display_name": "K", "script": "true", "interval": 5, "timeout": 1, "order": 1}],
		"resources_monitoring": [{"memory": [{"enabled": true, "threshold": 80}], "volume": [{"path": "/", "enabled": true, "threshold": 90}]}]
	}`,
	"coder_app": `{
		"id": "55555555-5555-4555-8555-555555555555", "agent_id": "` + mainAgent + `", "slug": "web", "display_name": "Web", "url": "http://localhost:1",
		"icon": "/icon/x.svg", "command": "", "external": false, "subdomain": false, "share": "owner", "order": 1, "hidden": false, "group": "g",
		"open_in": "tab", "tooltip": "t", "healthcheck": [{"url": "http://localhost:1/up", "interval": 5, "threshold": 6}]
	}`,
	"coder_script": `{
		"id": "66666666-6666-4666-8666-666666666666", "agent_id": "` + mainAgent + `", "display_name": "S", "icon": "/icon/x.svg", "script": "true",
		"cron": "0 0 * * * *", "start_blocks_login": false, "run_on_start": true, "run_on_stop": false, "timeout": 5, "log_path": "s.log"
	}`,
	"coder_env":            `{"agent_id": "` + mainAgent + `", "name": "A", "value": "2", "merge_strategy": "append"}`,
	"coder_devcontainer":   `{"id": "` + container + `", "agent_id": "` + mainAgent + `", "workspace_folder": "/w", "config_path": "/c", "subagent_id": "` + inside + `"}`,
	"coder_external_agent": `{"id": "e", "agent_id": "` + mainAgent + `"}`,
	"coder_agent_instance": `{"id": "i", "agent_id": "` + mainAgent + `", "instance_id": "i-1"}`,
	"coder_metadata": `{
		"resource_id": "vm", "hide": false, "icon": "/icon/x.svg", "daily_cost": 1,
		"item": [{"key": "k", "value": "v", "sensitive": false, "is_null": false}]
	}`,
	"data.coder_parameter": `{
		"name": "n", "display_name": "N", "description": "d", "type": "number", "form_type": "input", "styling": "{}", "mutable": false, "ephemeral": false,
		"optional": true, "default": "1", "icon": "/icon/x.svg", "order": 1, "option": [{"name": "o", "description": "d", "value": "1", "icon": "/icon/x.svg"}],
		"validation": [{"min": 1, "min_disabled": false, "max": 9, "max_disabled": false, "monotonic": "increasing", "regex": "1", "error": "e"}]
	}`,
	"data.coder_workspace_preset": `{
		"name": "p", "description": "d", "icon": "/icon/x.svg", "default": false, "parameters": {"n": "1"},
		"prebuilds": [{
			"instances": 1, "expiration_policy": [{"ttl": 60}],
			"scheduling": [{"timezone": "UTC", "schedule": [{"cron": "* 8-18 * * 1-5", "instances": 2}]}]
		}]
	}`,
	"data.coder_external_auth":  `{"id": "github", "optional": false}`,
	"data.coder_workspace_tags": `{"tags": {"a": "b"}}`,
}

// others has other values of attributes, where not every value can stand for another one.
var others = map[string]any{
	"coder_app.agent_id":             otherAgent,
	"coder_script.agent_id":          otherAgent,
	"coder_env.agent_id":             otherAgent,
	"coder_devcontainer.agent_id":    otherAgent,
	"coder_external_agent.agent_id":  otherAgent,
	"coder_agent_instance.agent_id":  otherAgent,
	"coder_devcontainer.subagent_id": "77777777-7777-4777-8777-777777777777",
	"coder_agent.api_key_scope":      "no_user_data",
	"coder_metadata.resource_id":     "volume",
}

// reportOf returns what the provisioner tells the server about the examples, with attributes of one kind instead of its example's.
func reportOf(t *testing.T, kind string, attributes any) []byte {
	t.Helper()
	text, err := json.Marshal(attributes)
	if err != nil {
		t.Fatal(err)
	}
	managed := []Node{
		{typ: "null_resource", name: "vm", attrs: json.RawMessage(`{"id": "vm"}`), deps: []string{"coder_agent.main", "coder_agent.other"}},
		{typ: "null_resource", name: "volume", attrs: json.RawMessage(`{"id": "volume"}`)},
		{typ: "coder_agent", name: "other", attrs: json.RawMessage(`{"id": "` + otherAgent + `"}`)},
	}
	var data []Node
	for _, of := range slices.Sorted(maps.Keys(examples)) {
		n := Node{name: "main", attrs: json.RawMessage(examples[of])}
		if of == kind {
			n.attrs = text
		}
		var isData bool
		if n.typ, isData = strings.CutPrefix(of, "data."); isData {
			data = append(data, n)
			continue
		}
		if of == devcontainer {
			n.name = "box"
		}
		managed = append(managed, n)
	}
	resources, err := DeriveResources(nil, managed)
	if err != nil {
		t.Fatalf("%s %s: %v", kind, text, err)
	}
	found, err := ReadDeclared(nil, data)
	if err != nil {
		t.Fatalf("%s %s: %v", kind, text, err)
	}
	tags, err := ReadTags(nil, Plan{Data: data})
	if err != nil {
		t.Fatalf("%s %s: %v", kind, text, err)
	}
	out, err := proto.MarshalOptions{Deterministic: true}.Marshal(&provisionerpb.ImportResult{
		StartResources: resources, Parameters: found.Parameters(), Presets: found.presets, ExternalAuth: found.auths, WorkspaceTags: tags.Values,
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// example returns the attributes of a kind's example, or nil if it has none.
func example(t *testing.T, kind string) (attributes map[string]any) {
	t.Helper()
	if text := examples[kind]; text != "" {
		if err := json.Unmarshal([]byte(text), &attributes); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
	}
	return attributes
}

// alter gives the attribute at a path another value, in the first of repeated blocks. It returns false if the attribute has no value.
func alter(attributes map[string]any, path string, other any) bool {
	name, rest, nested := strings.Cut(path, ".")
	old, found := attributes[name]
	if !found {
		return false
	}
	if blocks, ok := old.([]any); nested && ok {
		block, _ := blocks[0].(map[string]any)
		return alter(block, rest, other)
	}
	switch old := old.(type) {
	case string:
		attributes[name] = cmp.Or(other, any(old+"-other"))
	case float64:
		attributes[name] = old + 1
	case bool:
		attributes[name] = !old
	case map[string]any:
		old["other"] = "x"
	default:
		return false
	}
	return true
}

// honored reports whether the server learns of another value of an attribute.
func honored(t *testing.T, kind, path string) bool {
	t.Helper()
	before, after := example(t, kind), example(t, kind)
	return alter(after, path, others[kind+"."+path]) && !bytes.Equal(reportOf(t, kind, before), reportOf(t, kind, after))
}

// given describes the values that templates get from the server, which TestGivenFacts checks.
var given = map[string]string{
	"coder_agent.init_script":                      "The script that downloads the agent from this server and runs it.",
	"data.coder_external_auth.access_token":        "The owner's token at that provider, if the owner [consents to the template](secrets.md#consent-to-a-template). Empty in imports, and if the login is optional and missing.",
	"data.coder_parameter.value":                   "The user's answer, or the default. Required parameters have a placeholder in imports.",
	"data.coder_provisioner.arch":                  "Of the provisioner.",
	"data.coder_provisioner.os":                    "Of the provisioner.",
	"data.coder_workspace.access_port":             "",
	"data.coder_workspace.access_url":              "",
	"data.coder_workspace.is_prebuild":             "True while a [prebuilt workspace](prebuilds.md) has no user.",
	"data.coder_workspace.is_prebuild_claim":       "True in the build that gives a prebuilt workspace to its user.",
	"data.coder_workspace.id":                      "",
	"data.coder_workspace_owner.id":                "",
	"data.coder_workspace_preset.id":               "The name of the preset.",
	"data.coder_workspace.name":                    "",
	"data.coder_workspace.prebuild_count":          "1 while a prebuilt workspace has no user.",
	"data.coder_workspace.start_count":             "",
	"data.coder_workspace.template_id":             "",
	"data.coder_workspace.template_name":           "",
	"data.coder_workspace.template_version":        "",
	"data.coder_workspace.transition":              "",
	"data.coder_workspace_owner.email":             "",
	"data.coder_workspace_owner.full_name":         "The user name of owners without a full name.",
	"data.coder_workspace_owner.groups":            "",
	"data.coder_workspace_owner.login_type":        "",
	"data.coder_workspace_owner.name":              "",
	"data.coder_workspace_owner.rbac_roles":        "",
	"data.coder_workspace_owner.ssh_public_key":    "",
	"data.coder_workspace_owner.oidc_access_token": "If the source of the template names it, and the owner [consents to the template](secrets.md#consent-to-a-template) and signed in with OpenID Connect. Otherwise empty.",
	"data.coder_workspace_owner.session_token":     "If the source of the template names it, and the owner [consents to the template](secrets.md#consent-to-a-template). A token for this workspace, which ends when the workspace stops.",
	"data.coder_workspace_owner.ssh_private_key":   "If the source of the template names it, and the owner [consents to the template](secrets.md#consent-to-a-template).",
}

// limits describes how far attributes are honored, where a sentence helps.
var limits = map[string]string{
	"coder_agent.api_key_scope":                         "With `no_user_data` the agent gets neither its owner's git key nor tokens of external logins.",
	"coder_agent.auth":                                  "`token`, or the cloud of the [agent's machine](agent.md#machines-of-clouds).",
	"coder_agent.display_apps.ssh_helper":               "Shows JetBrains and the commands to connect.",
	"coder_agent.metadata.timeout":                      "Defaults to the interval.",
	"coder_agent.resources_monitoring.memory.threshold": "Percent, from 0 to 100. The workspace's owner is [notified](agent.md#memory-and-volumes).",
	"coder_agent.resources_monitoring.volume.path":      "An absolute path. An agent can monitor 16 volumes.",
	"coder_agent.resources_monitoring.volume.threshold": "Percent, from 0 to 100.",
	"coder_agent.os":                                    "`linux`, `windows` or `darwin`: see [macOS](agent.md#macos).",
	"coder_app.command":                                 "Opens in a terminal of the dashboard.",
	"coder_app.icon":                                    "A path on this server, or an emoji. The dashboard loads no icons from other hosts.",
	"coder_app.subdomain":                               "Needs `--wildcard-access-url`.",
	"coder_app.tooltip":                                 "Shown as text, without links.",
	"coder_devcontainer.workspace_folder":               "See [dev containers](agent.md#dev-containers).",
	"coder_metadata.daily_cost":                         "Counts against [quotas](groups.md).",
	"coder_metadata.item.value":                         "Items whose value is null are not shown.",
	"coder_script.cron":                                 "Six fields, seconds first. Five fields work too.",
	"data.coder_parameter.styling":                      "`placeholder`, `label`, `disabled` and `mask_input`.",
	"data.coder_workspace_tags.tags":                    "See [tags that depend on parameters](provisioners.md#tags-that-depend-on-parameters).",
}

// TestReference checks that every attribute of the coder provider is honored and has a test of its effect, or is reported, and that
// docs/templates-reference.md says so. An
// attribute is honored if another value of it changes what the provisioner tells the server; TestEveryFieldArrives of coderd/agents and
// coderd/templates check that each field of that changes what users or agents get.
func TestReference(t *testing.T) {
	t.Parallel()
	p := provider.New()
	kinds := map[string]*schema.Resource{}
	for name, resource := range p.ResourcesMap {
		kinds[name] = resource
	}
	for name, source := range p.DataSourcesMap {
		kinds["data."+name] = source
	}
	var page strings.Builder
	page.WriteString(referenceIntro)
	used := map[string]bool{}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&page, "\n## `%s`\n\n", strings.Replace(kind, "data.", "data ", 1))
		if reason := template.Without[kind]; reason != "" {
			used[kind] = true
			fmt.Fprintf(&page, "No effect, and reported: %s.\n", reason)
			continue
		}
		page.WriteString("| attribute | here | effect shown by |\n|---|---|---|\n")
		for _, a := range leaves(kinds[kind].Schema, "") {
			path := kind + "." + a.path
			used[path] = true
			what, described := "", false
			switch {
			case honored(t, kind, a.path):
				what = strings.TrimSpace("Honored. " + limits[path])
			case a.computed:
				if what, described = given[path]; !described {
					t.Errorf("%s: the provider computes it: describe in given what templates get", path)
				}
				what = strings.TrimSpace("Provided. " + what)
			default:
				t.Errorf("%s changes nothing, and is not in template.Without", path)
			}
			test := effectOf(path)
			if test == "" {
				t.Errorf("%s: name the test of its effect in effects", path)
			}
			fmt.Fprintf(&page, "| `%s` | %s | `%s` |\n", a.path, what, test)
		}
	}
	page.WriteString("\nThe provider's own argument `url` is honored: it changes the address that agents download from.\n")
	for _, paths := range effects {
		for _, path := range paths {
			if !used[path] {
				t.Errorf("%s: the provider does not have it", path)
			}
		}
	}
	for _, table := range []map[string]string{template.Without, given, limits} {
		for path := range table {
			if !used[path] {
				t.Errorf("%s: the provider does not have it", path)
			}
		}
	}
	const file = "../../../docs/templates-reference.md"
	if *update {
		if err := os.WriteFile(file, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != page.String() {
		t.Errorf("docs/templates-reference.md differs (%v), run: go test ./provisionerd/terraform/result -run TestReference -update", err)
	}
}

type leaf struct {
	path     string
	computed bool // the provider sets it, and templates cannot
}

// leaves returns the attributes of a schema and its nested blocks, sorted.
func leaves(of map[string]*schema.Schema, prefix string) (all []leaf) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		s := of[name]
		computed := s.Computed && !s.Optional && !s.Required
		if inner, ok := s.Elem.(*schema.Resource); ok && !computed {
			all = append(all, leaves(inner.Schema, prefix+name+".")...)
			continue
		}
		all = append(all, leaf{prefix + name, computed})
	}
	return all
}

// TestMetadataIsSorted: the server and the agent keep the order in which the provisioner reports metadata.
func TestMetadataIsSorted(t *testing.T) {
	t.Parallel()
	a, err := newAgent(&Node{typ: "coder_agent", name: "main", attrs: json.RawMessage(`{"metadata": [{"key": "b", "order": 1}, {"key": "c"}, {"key": "a", "order": 1}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, m := range a.GetMetadata() {
		keys = append(keys, m.GetKey())
	}
	if want := []string{"c", "a", "b"}; !slices.Equal(keys, want) {
		t.Errorf("order %v, want %v", keys, want)
	}
}
