package result

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// Diagnostic is an error or a warning from Terraform.
type Diagnostic struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"`
	Detail   string `json:"detail"`
	Address  string `json:"address"`
	Snippet  *struct {
		Context string `json:"context"` // of the block around it, such as resource "coder_agent" "main"
		Code    string `json:"code"`    // the source's lines
		Values  []struct {
			Traversal string `json:"traversal"`
		} `json:"values"`
	} `json:"snippet"`
	Range *struct {
		Filename string `json:"filename"`
		Start    struct {
			Line int `json:"line"`
		} `json:"start"`
	} `json:"range"`
}

// String formats the diagnostic for users: main.tf:12: summary: detail.
func (d Diagnostic) String() string {
	text := strings.TrimSpace(d.Summary)
	if detail := strings.TrimSpace(d.Detail); detail != "" && detail != text {
		if text != "" {
			text = strings.TrimRight(text, ".:") + ": "
		}
		text += detail
	}
	if hint := cmp.Or(d.hint(), d.removed()); hint != "" {
		text = hint + " (" + text + ")"
	}
	if d.Range != nil && d.Range.Filename == VariablesFile {
		return d.variable() + text
	}
	if d.Range != nil && d.Range.Filename != "" {
		return fmt.Sprintf("%s:%d: %s", d.Range.Filename, d.Range.Start.Line, text)
	}
	if d.Address != "" {
		return d.Address + ": " + text
	}
	return text
}

// place returns file and line in the template t, which may be nil.
func (d Diagnostic) place(t *template.Source) string {
	if d.Range != nil && d.Range.Filename != "" {
		return fmt.Sprintf("%s:%d", d.Range.Filename, d.Range.Start.Line)
	}
	return t.Place(stripIndexes(d.Address))
}

// at is String with a place in the template t, which may be nil, even if Terraform names only an address.
func (d Diagnostic) at(t *template.Source) string {
	if d.Range == nil && d.Address != "" && t != nil {
		return d.place(t) + ": " + d.String()
	}
	return d.String()
}

// inModules reports whether the diagnostic is about a module that was fetched, or about the version of Terraform.
func (d Diagnostic) inModules() bool {
	return d.Range != nil && strings.Contains(d.Range.Filename, ".terraform/modules/") ||
		strings.HasPrefix(d.Summary, "Unsupported Terraform Core version")
}

// variable returns "variable NAME: " for a diagnostic about the job's own file of variables, which no author knows, or
// "" if Terraform does not name the variable.
func (d Diagnostic) variable() string {
	if d.Snippet != nil {
		for _, value := range d.Snippet.Values {
			if name, ok := strings.CutPrefix(value.Traversal, "var."); ok {
				return "variable " + name + ": "
			}
		}
	}
	return ""
}

// These find the provider or module that Terraform cannot get, and why.
var (
	unavailableProvider = lazyregexp.New(`(?s)^Could not retrieve the list of available versions for provider (\S+): (.*)$`)
	unavailableModule   = lazyregexp.New(`(?s)^Failed to retrieve available versions for module "([^"]+)" \([^)]*\) from (\S+): (.*)$`)
)

// guessed finds the providers in Terraform's complaint that it lacks them.
var guessed = lazyregexp.New(`provider registry\.(?:terraform\.io|opentofu\.org)/(\S+): required by this configuration but no version is selected`)

// hint returns what to do about a mistake that Terraform misreports, or "". For a template that does not name the
// source of its providers, Terraform reports an inconsistent lock file and suggests a command that the author cannot
// run.
func (d Diagnostic) hint() string {
	detail := strings.TrimSpace(d.Detail)
	if found := unavailableProvider().FindStringSubmatch(detail); found != nil {
		return fmt.Sprintf("The provisioner cannot get the provider %s: give it a route to the provider's registry, "+
			"or a mirror that has it", found[1])
	}
	if found := unavailableModule().FindStringSubmatch(detail); found != nil {
		return fmt.Sprintf("The provisioner cannot get the module %s from %s: give it a route there, or a registry "+
			"of your own", found[1], found[2])
	}
	if d.Summary != "Inconsistent dependency lock file" {
		return ""
	}
	for _, found := range guessed().FindAllStringSubmatch(d.Detail, -1) {
		if found[1] == "hashicorp/coder" {
			return `The template uses the provider coder and does not say where it comes from. Add: terraform { required_providers { coder = { source = "coder/coder" } } }`
		}
	}
	return "The template's providers do not fit its .terraform.lock.hcl. Name each in terraform { required_providers " +
		"{ … } }, and run terraform init in the template's folder to renew the file"
}

// parameterOf returns the name of the parameter that a diagnostic is about.
func parameterOf(d Diagnostic, t *template.Source) (string, bool) {
	label, ok := strings.CutPrefix(stripIndexes(d.Address), "data.coder_parameter.")
	if !ok {
		if i := strings.LastIndex(d.Address, ".data.coder_parameter."); i >= 0 {
			return stripIndexes(d.Address[i+len(".data.coder_parameter."):]), true
		}
		return "", false
	}
	if t != nil && t.Parameters[label] != "" {
		return t.Parameters[label], true
	}
	return label, true
}

// Explain returns sentences for users about the errors of a command, each once and at most a few, and the code of the
// job's error, or "". inModules says that one is about a module that was fetched, or about the version of Terraform. t
// may be nil.
func Explain(diags []Diagnostic, t *template.Source) (texts []string, code string, inModules bool) {
	for _, d := range diags {
		text := d.at(t)
		inModules = inModules || d.inModules()
		if name, ok := parameterOf(d, t); ok {
			code = CodeParameters
			text = fmt.Sprintf("%s: parameter %q: %s", d.place(t), name,
				cmp.Or(strings.TrimSpace(strings.TrimPrefix(d.Detail, "Error: ")), d.Summary))
		}
		if d.Summary == "No value for required variable" {
			code = codeVariables
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	const most = 5
	if len(texts) > most {
		texts = append(texts[:most], fmt.Sprintf("and %d more errors, see the log", len(texts)-most))
	}
	return texts, code, inModules
}

// VariablesFile is the job's own file with the values of variables. Terraform reads it last.
const VariablesFile = "zz_job.auto.tfvars.json"
