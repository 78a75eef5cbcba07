package template

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// Without lists the coder provider's resources and data sources that this server ignores, with the reason.
var Without = map[string]string{
	"coder_ai_task":   "this server has no tasks",
	"data.coder_task": "this server has no tasks, so enabled is false and prompt is empty",
}

// readSupport records which features in a block of the root module this server does not support. Terraform knows more
// about them after a plan.
func (t *Source) readSupport(block *hcl.Block) {
	place, address := placeOf(block), addressOf(block)
	kind := strings.TrimSuffix(address, "."+block.Labels[1])
	if reason := Without[kind]; reason != "" {
		t.Ignored[address] = Ignored(place, kind, reason)
	}
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
