package result

import (
	"maps"
	"slices"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// CheckSupport returns a warning for each thing that this server ignores.
func CheckSupport(t *template.Source, p Plan) (warnings []string) {
	ignored := maps.Clone(t.Ignored)
	for _, n := range p.Resources {
		addIgnored(ignored, t, n, "")
	}
	for _, n := range p.Data {
		addIgnored(ignored, t, n, "data.")
	}
	return slices.Compact(slices.Sorted(maps.Values(ignored)))
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
