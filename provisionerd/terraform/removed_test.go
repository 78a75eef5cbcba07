package terraform_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/coder/terraform-provider-coder/v2/provider"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"

	"github.com/codermesh/codermesh/v2/internal/legacy"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestRemovedIsExplained imports templates for old versions of the provider: the error names file, line and what replaces the attribute, in
// the root module, in a string, and for a block that was renamed. The constraint is warned about once.
func TestRemovedIsExplained(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	head := "terraform {\n  required_providers {\n    coder = {\n      source  = \"coder/coder\"\n      version = \"~> 0.6.12\"\n    }\n  }\n}\n"
	const agent = "resource \"coder_agent\" \"main\" {\n  os = \"linux\"\n  arch = \"amd64\"\n%s}\n"
	for _, c := range []struct{ source, want string }{
		{"data \"coder_workspace\" \"me\" {}\noutput \"o\" {\n  value = \"for ${data.coder_workspace.me.owner_email}!\"\n}\n",
			"main.tf:11: owner_email of data.coder_workspace is not in version 2.19.0 of the provider coder, which runs here: use data.coder_workspace_owner.me.email, and add: data \"coder_workspace_owner\" \"me\" {}. coder templates migrate rewrites such templates"},
		{"data \"coder_git_auth\" \"x\" {\n  id = \"github\"\n}\n", `main.tf:9: data.coder_git_auth is not in version 2.19.0 of the provider coder, which runs here: use data "coder_external_auth"`},
		{fmt.Sprintf(agent, "  login_before_ready = false\n"), `main.tf:12: login_before_ready of coder_agent is not in version`},
		{fmt.Sprintf(agent, "  startup_script_timeout = 3\n"), `main.tf:12: startup_script_timeout of coder_agent is not in version`},
		{fmt.Sprintf(agent, "") + "resource \"coder_app\" \"x\" {\n  agent_id = coder_agent.main.id\n  slug = \"x\"\n  relative_path = true\n}\n", `main.tf:16: relative_path of coder_app is not in version 2.19.0 of the provider coder, which runs here: use subdomain, with the opposite value`},
		{fmt.Sprintf(agent, "") + "resource \"coder_app\" \"x\" {\n  agent_id = coder_agent.main.id\n}\n", `main.tf:13: Since version 0.7 of the provider coder, each app needs a slug`},
		{fmt.Sprintf(agent, "") + "provider \"coder\" {\n  feature_use_managed_variables = true\n}\n", `main.tf:14: feature_use_managed_variables of provider.coder is not in version`},
		{"data \"coder_parameter\" \"x\" {\n  name = \"x\"\n  legacy_variable_name = \"x\"\n}\n", `main.tf:11: legacy_variable_name of data.coder_parameter is not in version`},
		// Not the provider's: no advice.
		{"locals {\n  a = { name = \"x\" }\n}\noutput \"o\" {\n  value = local.a.owner\n}\n", "!coder templates migrate rewrites"},
	} {
		j := newTrial(t, map[string]string{"main.tf": head + c.source})
		result := j.importIt(e, &provisionerpb.TemplateImport{})
		wanted, refused := strings.CutPrefix(c.want, "!")
		if result.GetError() == "" || strings.Contains(result.GetError(), wanted) == refused {
			t.Errorf("%s\nerror %q, want %q", c.source, result.GetError(), c.want)
		}
		warning := `main.tf:3: version "~> 0.6.12" excludes the provider coder 2.19.0, which is built in and runs all the same.`
		if got := strings.Count(j.sink.text(), warning); got != 1 {
			t.Errorf("%d warnings about the constraint, want 1:\n%s", got, j.sink.text())
		}
	}
}

// TestRemovals compares the list of removals with the provider: it lacks what the list names as gone, and has what replaces it.
func TestRemovals(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := "github.com/coder/terraform-provider-coder/v2 v" + legacy.Version; !strings.Contains(string(mod), want+"\n") {
		t.Errorf("go.mod has not %q: correct legacy.Version", want)
	}
	p := provider.New()
	attributes := func(kind string) map[string]*schema.Schema {
		if kind == "provider.coder" {
			return p.Schema
		}
		found := p.ResourcesMap[kind]
		if name, ok := strings.CutPrefix(kind, "data."); ok {
			found = p.DataSourcesMap[name]
		}
		if found == nil {
			return nil
		}
		return found.Schema
	}
	for _, r := range legacy.All() {
		has := attributes(r.Kind)
		if r.Attribute == "" {
			if has != nil {
				t.Errorf("the provider has %s", r.Kind)
			}
			continue
		}
		if len(has) == 0 || has[r.Attribute] != nil {
			t.Errorf("the provider's %s has %d attributes, and among them %s: %v", r.Kind, len(has), r.Attribute, has[r.Attribute] != nil)
		}
		if r.Kind == "data.coder_workspace" {
			_, name, _ := strings.Cut(r.Instead, "data.coder_workspace_owner.me.")
			name, _, _ = strings.Cut(name, ",")
			if attributes("data.coder_workspace_owner")[name] == nil {
				t.Errorf("%s: the provider's data.coder_workspace_owner has no %q", r, name)
			}
		}
	}
}
