package terraform_test

import (
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

const (
	agentText  = "resource \"coder_agent\" \"main\" {\n  os   = \"linux\"\n  arch = \"amd64\"\n}\n"
	optionText = "data \"coder_parameter\" \"p\" {\n  name = \"p\"\n  default = \"a\"\n  option {\n    name = \"A\"\n    value = \"a\"\n  }\n  option {\n    name = \"B\"\n    value = \"b\"\n  }\n}\n"
	numberText = "data \"coder_parameter\" \"n\" {\n  name = \"n\"\n  type = \"number\"\n  default = 1\n  validation {\n    min = 1\n    max = 4\n  }\n}\n"
	longSlug   = "a-slug-that-is-as-long-as-the-name-of-a-whole-host-can-be"
)

// TestRefusedAtImport checks that mistakes that Terraform accepts fail the import, with the places of all that is concerned.
func TestRefusedAtImport(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	preset := func(name, more string) string {
		return "data \"coder_workspace_preset\" \"" + name + "\" {\n  name = \"" + name[:1] + "\"\n" + more + "}\n"
	}
	app := func(name, slug string) string {
		return "resource \"coder_app\" \"" + name + "\" {\n  agent_id = coder_agent.main.id\n  subdomain = true\n  slug = \"" + slug + "\"\n  url = \"http://localhost\"\n}\n"
	}
	for name, c := range map[string]struct{ text, want string }{
		"slugs":           {agentText + app("a", "web") + app("b", "web"), `main.tf:16: the app coder_app.b has the slug "web" of the app at main.tf:10`},
		"counted slug":    {agentText + strings.Replace(app("a", "web"), "{\n", "{\n  count = 2\n", 1), `main.tf:10: the app coder_app.a has the slug "web" of the app at main.tf:10`},
		"long slug":       {agentText + app("a", longSlug), `main.tf:10: the app "` + longSlug + `" cannot have a host of its own`},
		"agents":          {agentText + strings.Replace(agentText, `"main"`, `"Main"`, 1), "main.tf:6: the agents coder_agent.Main (main.tf:10) and coder_agent.main have the same name"},
		"env":             {agentText + envText("a") + envText("b"), "main.tf:16: two coder_env resources define X for the agent main: the other is at main.tf:10"},
		"preset names":    {preset("a1", "") + preset("a2", ""), `main.tf:9: the preset "a" has the name of the one at main.tf:6`},
		"default presets": {preset("a", "  default = true\n") + preset("b", "  default = true\n"), `main.tf:10: the preset "b" is a second default beside the one at main.tf:6`},
		"no parameter":    {preset("a", "  parameters = { y = \"1\" }\n"), `main.tf:6: the preset "a" sets the parameter "y", which the template does not have`},
		"no option":       {optionText + preset("a", "  parameters = { p = \"c\" }\n"), `main.tf:18: the preset "a" gives the parameter "p" the value "c": the value "c" must be defined as one of options`},
		"out of range":    {numberText + preset("a", "  parameters = { n = \"5\" }\n"), `main.tf:15: the preset "a" gives the parameter "n" the value "5": value 5 is more than the maximum 4`},
		"no number":       {numberText + preset("a", "  parameters = { n = \"x\" }\n"), `main.tf:15: the preset "a" gives the parameter "n" the value "x": `},
		"parameters": {strings.Replace(optionText, `"p"`, `"q"`, 1) + optionText,
			`main.tf:6: two parameters are named "p": data.coder_parameter.p (main.tf:18) and data.coder_parameter.q`},
		"bad default": {strings.Replace(numberText, "default = 1", "default = 9", 1), `main.tf:9: parameter "n": value 9 is more than the maximum 4`},
		"no variable": {"variable \"image\" {}\n", "main.tf:6: the template needs a value for its variable image: "},
	} {
		t.Run(name, func(t *testing.T) {
			j := newTrial(t, files(c.text))
			if result := j.importIt(e, &provisionerpb.TemplateImport{}); !strings.HasPrefix(result.GetError(), c.want) {
				t.Errorf("got %q\nwant %q", result.GetError(), c.want)
			}
			if strings.Contains(j.sink.text(), "public registry") {
				t.Errorf("the log blames the version of Terraform:\n%s", j.sink.text())
			}
		})
	}
}

func envText(name string) string {
	return "resource \"coder_env\" \"" + name + "\" {\n  agent_id = coder_agent.main.id\n  name = \"X\"\n  value = \"1\"\n  merge_strategy = \"error\"\n}\n"
}

// TestPresetOfDependentParameters checks that a preset may choose what only its other choices make possible.
func TestPresetOfDependentParameters(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	const dependent = `data "coder_parameter" "more" {
  name    = "more"
  type    = "bool"
  default = false
}
data "coder_parameter" "n" {
  name    = "n"
  type    = "number"
  default = 1
  validation {
    min = 1
    max = data.coder_parameter.more.value ? 8 : 4
  }
}
data "coder_parameter" "extra" {
  count = data.coder_parameter.more.value ? 1 : 0
  name  = "extra"
  default = "x"
}
data "coder_workspace_preset" "a" {
  name       = "a"
  parameters = { more = "%", n = "6" }
}
data "coder_workspace_preset" "b" {
  name       = "b"
  parameters = { more = "true", extra = "y" }
}
`
	if result := newTrial(t, files(strings.Replace(dependent, "%", "true", 1))).importIt(e, &provisionerpb.TemplateImport{}); result.GetError() != "" {
		t.Errorf("with what makes it possible: %s", result.GetError())
	}
	result := newTrial(t, files(strings.Replace(dependent, "%", "false", 1))).importIt(e, &provisionerpb.TemplateImport{})
	if want := `main.tf:25: the preset "a" gives the parameter "n" the value "6": value 6 is more than the maximum 4`; !strings.HasPrefix(result.GetError(), want) {
		t.Errorf("got %q\nwant %q", result.GetError(), want)
	}
}

// TestWarnedAtImport checks that the import's log says what has no effect.
func TestWarnedAtImport(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	content := files("terraform {\n  cloud {\n    organization = \"example\"\n  }\n}\nvariable \"image\" {\n  default = \"x\"\n}\n" + numberText +
		strings.Replace(numberText, "  default = 1\n", "", 1) + "data \"coder_workspace_preset\" \"a\" {\n  name = \"a\"\n  prebuilds {\n    instances = 1\n  }\n}\n")
	content["main.tf"] = strings.Replace(content["main.tf"], "data \"coder_parameter\" \"n\" {\n  name = \"n\"", "data \"coder_parameter\" \"m\" {\n  name = \"m\"", 1)
	j := newTrial(t, content)
	result := j.importIt(e, &provisionerpb.TemplateImport{Variables: []*provisionerpb.VariableValue{{Name: "nope", Value: "1"}}})
	if result.GetError() != "" {
		t.Fatal(result.GetError())
	}
	for _, want := range []string{
		"LOG_LEVEL_WARN The backend in main.tf:7 is not used: the server keeps the state",
		`LOG_LEVEL_WARN The value of the variable "nope" is not used: the template has image`,
		`LOG_LEVEL_WARN main.tf:31: the preset "a" has no value for the parameter "n", which is required`,
	} {
		if !strings.Contains(j.sink.text(), want) {
			t.Errorf("no %q in:\n%s", want, j.sink.text())
		}
	}
}

// TestModuleErrorNamesVersion checks that an old Terraform is blamed for errors that it may have caused.
func TestModuleErrorNamesVersion(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	j := newTrial(t, map[string]string{"main.tf": "terraform {\n  required_version = \">= 99\"\n}\n"})
	result := j.importIt(e, &provisionerpb.TemplateImport{})
	if !strings.HasPrefix(result.GetError(), "main.tf:2: Unsupported Terraform Core version") {
		t.Errorf("got %q", result.GetError())
	}
}

// TestAppsOfABuild checks that a build's log names the apps that cannot be opened.
func TestAppsOfABuild(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	const slug = "a-slug-that-leaves-no-room-for-the-names-of-others-too"
	j := newTrial(t, files(agentText+"resource \"coder_app\" \"a\" {\n  agent_id = coder_agent.main.id\n  subdomain = true\n  slug = \""+slug+"\"\n  url = \"http://localhost\"\n}\n"))
	ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
	if want := `main.tf:10: the app "` + slug + `" cannot be opened: the first part of its host name, ` + slug + "--main--dev--ann, has 70 bytes"; !strings.Contains(j.sink.text(), want) {
		t.Errorf("no %q in:\n%s", want, j.sink.text())
	}
}
