package result

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// configuration is what a plan says about the template's objects beside their values.
type configuration struct {
	declared map[string]bool       // addresses of all resources and data sources, without indexes
	nullTags map[string][]string   // tags without a value, by label of the root module's coder_workspace_tags
	deferred map[string][]deferral // data sources that only an apply can read, by address without indexes
}

// deferral says which attributes of a data source are unknown: true, or an object of the same.
type deferral map[string]any

// configurationOf reads the configuration of a plan. Unlike the source files it covers modules, JSON and overriding
// files.
func configurationOf(shown *tfjson.Plan) configuration {
	c := configuration{declared: map[string]bool{}, deferred: map[string][]deferral{}, nullTags: map[string][]string{}}
	if shown.Config != nil {
		c.declare("", shown.Config.RootModule)
	}
	if shown.PlannedValues != nil {
		for name, out := range shown.PlannedValues.Outputs {
			if label, ok := strings.CutPrefix(name, template.NullTagsOutput); ok {
				for _, tag := range asList(out.Value) {
					c.nullTags[label] = append(c.nullTags[label], text(tag))
				}
			}
		}
	}
	for _, change := range shown.ResourceChanges {
		if change.Mode != tfjson.DataResourceMode || change.Change == nil {
			continue
		}
		unknown, _ := change.Change.AfterUnknown.(map[string]any)
		address := stripIndexes(change.Address)
		c.deferred[address] = append(c.deferred[address], unknown)
	}
	return c
}

func (c *configuration) declare(prefix string, module *tfjson.ConfigModule) {
	if module == nil {
		return
	}
	for _, r := range module.Resources {
		address := r.Type + "." + r.Name
		if r.Mode == tfjson.DataResourceMode {
			address = "data." + address
		}
		c.declared[prefix+address] = true
	}
	for name, call := range module.ModuleCalls {
		if call != nil {
			c.declare(prefix+"module."+name+".", call.Module)
		}
	}
}

func asList(v any) []any {
	list, _ := v.([]any)
	return list
}

// isTags reports whether an address is that of a coder_workspace_tags.
func isTags(address string) bool {
	return strings.HasPrefix(address, "data.coder_workspace_tags.") ||
		strings.Contains(address, ".data.coder_workspace_tags.")
}

// Tags are the tags that a template declares for the provisioners of its builds.
type Tags struct {
	Values   map[string]string
	Places   []string // in the template, with line
	Computed bool     // by data sources: the values are those of this plan
}

// ReadTags reads the tags from a plan. Tags decide where builds run. It therefore returns a fault unless each tag is
// known before a build: constants, anywhere; in the .tf files of the root module, also expressions that the server
// computes.
func ReadTags(t *template.Source, p Plan) (Tags, error) {
	var tags Tags
	for _, address := range slices.Sorted(maps.Keys(p.config.declared)) {
		if !isTags(address) {
			continue
		}
		place := t.Place(address)
		tags.Places = append(tags.Places, place)
		for _, d := range p.config.deferred[address] {
			return Tags{}, fault.New(fault.Invalid,
				"%s: %s %s not known before a build runs, and decides where it runs: use constants, variables, "+
					"parameters and locals only",
				place, address, d.unknownTags())
		}
		if null := p.config.nullTags[strings.TrimPrefix(address, "data.coder_workspace_tags.")]; len(null) > 0 {
			return Tags{}, fault.New(fault.Invalid, "%s: the tag %q has no value: it is null", place, null[0])
		}
		source := ""
		for _, dep := range reach(p.Graph, address) {
			if dep != address && p.config.declared[dep] {
				source = dep
				break
			}
		}
		if source == "" {
			continue
		}
		tags.Computed = true
		if file, _, _ := strings.Cut(place, ":"); strings.HasPrefix(address, "module.") ||
			!strings.HasSuffix(file, ".tf") {
			return Tags{}, fault.New(fault.Invalid,
				"%s: %s depends on %s: tags in modules and in JSON must be the same for every build. Move them into "+
					"a .tf file of the template's top folder",
				place, address, source)
		}
	}
	from := map[string]string{}
	for i := range p.Data {
		n := &p.Data[i]
		if n.typ != "coder_workspace_tags" {
			continue
		}
		if err := tags.add(t.Place(n.dataAddress()), n, from); err != nil {
			return Tags{}, err
		}
	}
	return tags, nil
}

// unknownTags names the tags that are unknown.
func (d deferral) unknownTags() string {
	each, _ := d["tags"].(map[string]any)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(each)) {
		names = append(names, fmt.Sprintf("%q", name))
	}
	switch len(names) {
	case 0:
		return "has tags that are"
	case 1:
		return "has the tag " + names[0] + ", which is"
	default:
		return "has the tags " + strings.Join(names, ", ") + ", which are"
	}
}

// add adds the tags of one data source. from holds the places of those added before.
func (w *Tags) add(place string, n *Node, from map[string]string) error {
	var attrs struct {
		Tags map[string]string `json:"tags"`
	}
	if err := json.Unmarshal(n.attrs, &attrs); err != nil {
		return fmt.Errorf("%s: read %s: %w", place, n.dataAddress(), err)
	}
	for _, key := range slices.Sorted(maps.Keys(attrs.Tags)) {
		value := attrs.Tags[key]
		if other, had := w.Values[key]; had && other != value {
			return fault.New(fault.Invalid, "%s: the tag %q is %q here, and %q at %s", place, key, value, other,
				from[key])
		}
		if w.Values == nil {
			w.Values = map[string]string{}
		}
		w.Values[key], from[key] = value, place
	}
	return nil
}

// dataAddress is the address of a data source's node.
func (n Node) dataAddress() string {
	address := "data." + n.typ + "." + n.name
	if n.module != "" {
		address = n.module + "." + address
	}
	return address
}
