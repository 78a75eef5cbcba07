package terraform

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/coder/terraform-provider-coder/v2/provider"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"

	"github.com/codermesh/codermesh/provisionerd/terraform/template"
)

var update = flag.Bool("update", false, "write docs/templates-reference.md")

const referenceIntro = `# The coder provider

Templates use the Terraform provider ` + "`coder/coder`" + `, which is built into provisioners: they ignore the ` + "`version`" + ` that a template asks for. This page lists all of its
resources and data sources, with what this server does with each attribute. What has no effect is reported in the log of the import, with file and line.

Generated from the provider's schema. Regenerate it with ` + "`go test ./provisionerd/terraform -run TestReference -update`" + `, which fails if an attribute is neither
honored nor reported.
`

// readTypes holds the types that the objects of a kind are decoded into.
var readTypes = map[string][]any{
	"coder_agent":                 {agentAttributes{}},
	"coder_app":                   {belonging{}, appAttributes{}},
	"coder_script":                {belonging{}, scriptAttributes{}},
	"coder_env":                   {belonging{}, agentEnv{}},
	"coder_devcontainer":          {belonging{}, devcontainerAttributes{}},
	"coder_external_agent":        {belonging{}},
	"coder_metadata":              {metadataAttributes{}},
	"data.coder_parameter":        {parameterAttributes{}},
	"data.coder_workspace_preset": {presetAttributes{}},
	"data.coder_external_auth":    {authAttributes{}},
	"data.coder_workspace_tags":   {tagsAttributes{}},
}

// given describes the values that templates get from the server, which TestGivenFacts checks.
var given = map[string]string{
	"coder_agent.init_script":                      "The script that downloads the agent from this server and runs it.",
	"data.coder_external_auth.access_token":        "The owner's token at that provider. Empty in imports, and if the login is optional and missing.",
	"data.coder_parameter.value":                   "The user's answer, or the default. Required parameters have a placeholder in imports.",
	"data.coder_provisioner.arch":                  "Of the provisioner.",
	"data.coder_provisioner.os":                    "Of the provisioner.",
	"data.coder_workspace.access_port":             "",
	"data.coder_workspace.access_url":              "",
	"data.coder_workspace.is_prebuild":             "True while a [prebuilt workspace](prebuilds.md) has no user.",
	"data.coder_workspace.is_prebuild_claim":       "True in the build that gives a prebuilt workspace to its user.",
	"data.coder_workspace.id":                      "",
	"data.coder_workspace_owner.id":                "",
	"data.coder_workspace_preset.id":               "Another one in each run: presets are known by their names.",
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
	"data.coder_workspace_owner.oidc_access_token": "If the source of the template names it, and the owner signed in with OpenID Connect. Otherwise empty.",
	"data.coder_workspace_owner.session_token":     "If the source of the template names it. A token for this workspace, which ends when the workspace stops.",
	"data.coder_workspace_owner.ssh_private_key":   "If the source of the template names it.",
}

// limits describes how far attributes are honored, where a sentence helps.
var limits = map[string]string{
	"coder_agent.api_key_scope":                         "With `no_user_data` the agent gets neither its owner's git key nor tokens of external logins.",
	"coder_agent.auth":                                  "`token`. The import fails for others.",
	"coder_agent.display_apps.ssh_helper":               "Shows JetBrains and the commands to connect.",
	"coder_agent.metadata.timeout":                      "Defaults to the interval.",
	"coder_agent.resources_monitoring.memory.threshold": "Percent, from 0 to 100. The workspace's owner is [notified](agent.md#memory-and-volumes).",
	"coder_agent.resources_monitoring.volume.path":      "An absolute path. An agent can monitor 16 volumes.",
	"coder_agent.resources_monitoring.volume.threshold": "Percent, from 0 to 100.",
	"coder_agent.os":                                    "`linux`. The import fails for others.",
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

// TestReference checks that every attribute of the coder provider is honored or reported, and that docs/templates-reference.md says so.
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
		page.WriteString("| attribute | here |\n|---|---|\n")
		read := map[string]bool{}
		for _, v := range readTypes[kind] {
			jsonPaths(reflect.TypeOf(v), "", read)
		}
		for _, name := range displayApps {
			read["display_apps."+name] = kind == "coder_agent"
		}
		for _, a := range leaves(kinds[kind].Schema, "") {
			path := kind + "." + a.path
			used[path] = true
			what, described := "", false
			switch {
			case read[a.path]:
				what = strings.TrimSpace("Honored. " + limits[path])
			case a.computed:
				if what, described = given[path]; !described {
					t.Errorf("%s: the provider computes it: describe in given what templates get", path)
				}
				what = strings.TrimSpace("Provided. " + what)
			default:
				t.Errorf("%s is neither read nor in template.Without", path)
			}
			fmt.Fprintf(&page, "| `%s` | %s |\n", a.path, what)
		}
	}
	page.WriteString("\nThe provider's own argument `url` is honored: it changes the address that agents download from.\n")
	for _, table := range []map[string]string{template.Without, given, limits} {
		for path := range table {
			if !used[path] {
				t.Errorf("%s: the provider does not have it", path)
			}
		}
	}
	const file = "../../docs/templates-reference.md"
	if *update {
		if err := os.WriteFile(file, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != page.String() {
		t.Errorf("docs/templates-reference.md differs (%v), run: go test ./provisionerd/terraform -run TestReference -update", err)
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

// jsonPaths adds the names of all fields of a type, as JSON has them.
func jsonPaths(typ reflect.Type, prefix string, into map[string]bool) {
	for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct {
		return
	}
	for field := range typ.Fields() {
		name := prefix + field.Tag.Get("json")
		into[name] = true
		jsonPaths(field.Type, name+".", into)
	}
}
