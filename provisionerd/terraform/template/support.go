package template

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/codermesh/codermesh/internal/fault"
)

// Without lists the coder provider's resources and data sources that this server ignores.
var Without = []string{"coder_devcontainer", "coder_ai_task", "coder_external_agent", "coder_agent_instance", "data.coder_task"}

// withoutBlocks holds the nested blocks that this server ignores, by the block that contains them.
var withoutBlocks = map[string]string{"coder_agent": "resources_monitoring", "data.coder_workspace_preset": "prebuilds"}

// readSupport records which features in a block of the root module this server does not support. Terraform knows more about them after a
// plan.
func (t *Source) readSupport(block *hcl.Block) {
	kind := block.Labels[0]
	if block.Type == "data" {
		kind = "data." + kind
	}
	place := fmt.Sprintf("%s:%d", block.DefRange.Filename, block.DefRange.Start.Line)
	t.places[kind+"."+block.Labels[1]] = place
	if slices.Contains(Without, kind) {
		t.Ignored = append(t.Ignored, Ignored(place, kind))
	}
	if inner := withoutBlocks[kind]; inner != "" {
		content, _, _ := block.Body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: inner}}}) // Terraform reports what is wrong
		for _, b := range content.Blocks {
			t.Ignored = append(t.Ignored, Ignored(fmt.Sprintf("%s:%d", b.DefRange.Filename, b.DefRange.Start.Line), inner+" of "+kind+"."+block.Labels[1]))
		}
	}
	if kind != "coder_agent" || t.Impossible != nil {
		return
	}
	attrs, _ := bodyAttributes(block.Body, "os", "auth", "count", "for_each")
	if attrs["count"] != nil || attrs["for_each"] != nil {
		return // there may be none
	}
	found := map[string]string{}
	for _, name := range []string{"os", "auth"} {
		if attr := attrs[name]; attr != nil {
			found[name] = Literal(attr.Expr)
		}
	}
	t.Impossible = CheckAgent(place, "coder_agent."+block.Labels[1], found["os"], found["auth"])
}

// Ignored returns the sentence about something that has no effect on this server.
func Ignored(place, what string) string {
	return fmt.Sprintf("%s: %s has no effect on this server", place, what)
}

// CheckAgent returns a fault for an agent that could never connect. Empty attributes are unknown, or have their default.
func CheckAgent(place, address, os, auth string) error {
	switch {
	case os != "" && os != "linux":
		return fault.New(fault.Invalid, `%s: %s has os = %q, and agents run on Linux only: use os = "linux"`, place, address, os)
	case auth != "" && auth != "token":
		return fault.New(fault.Invalid, `%s: %s has auth = %q, which this server does not support: use auth = "token", and give the machine %s.token as CODER_AGENT_TOKEN`,
			place, address, auth, address)
	}
	return nil
}

// Place returns where the source declares an address. For an address inside a module it returns where the root module calls that.
func (t *Source) Place(address string) string {
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
