package result

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// CheckSupport returns a fault if the plan has an agent that could never connect, and otherwise a warning for each
// thing that this server ignores.
func CheckSupport(t *template.Source, p Plan) (warnings []string, err error) {
	ignored := maps.Clone(t.Ignored)
	for _, n := range p.Resources {
		if n.typ == "coder_agent" {
			var attrs struct {
				OS   string `json:"os"`
				Auth string `json:"auth"`
			}
			if err := json.Unmarshal(n.attrs, &attrs); err != nil {
				return nil, fmt.Errorf("read %s: %w", n.address(), err)
			}
			if err := template.CheckAgent(t.Place(n.address()), n.address(), attrs.OS, attrs.Auth); err != nil {
				return nil, err
			}
		}
		addIgnored(ignored, t, n, "")
	}
	for _, n := range p.Data {
		addIgnored(ignored, t, n, "data.")
	}
	return slices.Compact(slices.Sorted(maps.Values(ignored))), nil
}

// addIgnored adds what the source alone did not show: objects in modules. prefix is "data." for a data source.
func addIgnored(ignored map[string]string, t *template.Source, n Node, prefix string) {
	kind, address := prefix+n.typ, prefix+n.address()
	place := t.Place(address)
	if n.module != "" {
		address = n.module + "." + kind + "." + n.name
		place = t.Place(address)
	}
	if reason := template.Without[kind]; reason != "" && ignored[address] == "" {
		ignored[address] = template.Ignored(place, kind, reason)
	}
}
