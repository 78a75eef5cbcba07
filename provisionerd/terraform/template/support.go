package template

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Without lists the coder provider's resources and data sources that this server ignores, with the reason.
var Without = map[string]string{
	"coder_ai_task":   "this server has no tasks",
	"data.coder_task": "this server has no tasks, so enabled is false and prompt is empty",
}

// Auths are the values of a coder_agent's auth: how the agent proves who it is.
var Auths = []string{"token", "aws-instance-identity", "azure-instance-identity", "google-instance-identity"}

// readSupport records which features in a block of the root module this server does not support. Terraform knows more
// about them after a plan.
func (t *Source) readSupport(block *hcl.Block) {
	place, address := placeOf(block), addressOf(block)
	kind := strings.TrimSuffix(address, "."+block.Labels[1])
	if reason := Without[kind]; reason != "" {
		t.Ignored[address] = Ignored(place, kind, reason)
	}
	attrs, _ := bodyAttributes(block.Body, "os", "auth", "count", "for_each")
	if kind != "coder_agent" || t.Impossible != nil {
		return
	}
	if attrs["count"] != nil || attrs["for_each"] != nil {
		return // there may be none
	}
	found := map[string]string{}
	for _, name := range []string{"os", "auth"} {
		if attr := attrs[name]; attr != nil {
			found[name] = Literal(attr.Expr)
		}
	}
	t.Impossible = CheckAgent(place, address, found["os"], found["auth"])
}

// readModule records where the root module calls a module.
func (t *Source) readModule(block *hcl.Block) {
	t.places["module."+block.Labels[0]] = placeOf(block)
}

// addressOf returns the address of a resource or data source of the root module.
func addressOf(block *hcl.Block) string {
	address := block.Labels[0] + "." + block.Labels[1]
	if block.Type == "data" {
		return "data." + address
	}
	return address
}

func placeOf(block *hcl.Block) string {
	return fmt.Sprintf("%s:%d", block.DefRange.Filename, block.DefRange.Start.Line)
}

// Ignored returns the sentence about something that has no effect on this server.
func Ignored(place, what, reason string) string {
	return fmt.Sprintf("%s: %s has no effect on this server: %s", place, what, reason)
}

// CheckAgent returns a fault for an agent that could never connect. Empty attributes are unknown, or have their
// default.
func CheckAgent(place, address, os, auth string) error {
	switch {
	case os != "" && os != "linux" && os != "windows":
		return fault.New(fault.Invalid,
			`%s: %s has os = %q, and agents run on Linux and Windows: use os = "linux" or "windows"`, place, address,
			os)
	case auth != "" && !slices.Contains(Auths, auth):
		return fault.New(fault.Invalid, `%s: %s has auth = %q, and this server knows %s`, place, address, auth,
			strings.Join(Auths, ", "))
	}
	return nil
}

// Place returns where the source declares an address. For an address inside a module it returns where the root module
// calls that. t may be nil: nothing is known then.
func (t *Source) Place(address string) string {
	if t == nil {
		return "the template"
	}
	if rest, ok := strings.CutPrefix(address, "module."); ok {
		name, _, _ := strings.Cut(rest, ".")
		if found := t.places["module."+name]; found != "" {
			return found + ": in module." + name
		}
	}
	if found := t.places[address]; found != "" {
		return found
	}
	return "the template"
}

// VariablePlace returns where the root module declares a variable.
func (t *Source) VariablePlace(name string) string { return t.Place("var." + name) }

// ParameterPlace returns where the root module declares the parameter with a name.
func (t *Source) ParameterPlace(name string) string {
	for label, of := range t.Parameters {
		if of == name {
			return t.Place("data.coder_parameter." + label)
		}
	}
	return t.Place("")
}
