package result

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"
)

// Plan is what a plan of the whole template contains.
type Plan struct {
	Resources []Node              // managed, with their dependencies
	Data      []Node              // data sources
	Graph     map[string][]string // which addresses each depends on directly
	config    configuration
}

// ReadPlan reads a plan that Terraform shows. A plan contains no dependencies: these come from the graph of the
// template.
func ReadPlan(shown *tfjson.Plan, graph map[string][]string) (p Plan, err error) {
	p = Plan{Graph: graph, config: configurationOf(shown)}
	if shown.PlannedValues != nil {
		if p.Resources, err = planNodes(shown.PlannedValues.RootModule, tfjson.ManagedResourceMode, graph); err != nil {
			return Plan{}, err
		}
	}
	if shown.PriorState != nil && shown.PriorState.Values != nil {
		if p.Data, err = planNodes(shown.PriorState.Values.RootModule, tfjson.DataResourceMode, graph); err != nil {
			return Plan{}, err
		}
	}
	return p, nil
}

// Cost returns the sum of the daily costs (coder_metadata) in a plan, as far as they are known.
func Cost(shown *tfjson.Plan) (cost int64, err error) {
	if shown.PlannedValues == nil {
		return 0, nil
	}
	nodes, err := planNodes(shown.PlannedValues.RootModule, tfjson.ManagedResourceMode, nil)
	if err != nil {
		return 0, err
	}
	for _, n := range nodes {
		var m struct {
			DailyCost int32 `json:"daily_cost"`
		}
		if n.typ == "coder_metadata" && json.Unmarshal(n.attrs, &m) == nil {
			cost += int64(m.DailyCost)
		}
	}
	return cost, nil
}

// planNodes returns the resource instances below a module of a plan.
func planNodes(module *tfjson.StateModule, mode tfjson.ResourceMode, graph map[string][]string) ([]Node, error) {
	if module == nil {
		return nil, nil
	}
	var all []Node
	for _, resource := range module.Resources {
		if resource.Mode != mode {
			continue
		}
		attrs, err := json.Marshal(resource.AttributeValues)
		if err != nil {
			return nil, fmt.Errorf("read plan: %w", err)
		}
		n := Node{module: stripIndexes(module.Address), typ: resource.Type, name: resource.Name, index: resource.Index,
			attrs: attrs}
		if number, ok := n.index.(json.Number); ok {
			n.index, _ = number.Float64()
		}
		n.deps = reach(graph, n.address())
		all = append(all, n)
	}
	for _, child := range module.ChildModules {
		nodes, err := planNodes(child, mode, graph)
		if err != nil {
			return nil, err
		}
		all = append(all, nodes...)
	}
	sortNodes(all)
	return all, nil
}

// reach returns all addresses that from depends on, directly or not.
func reach(graph map[string][]string, from string) []string {
	seen := map[string]bool{from: true}
	var all []string
	for next := []string{from}; len(next) > 0; {
		at := next[0]
		next = next[1:]
		for _, to := range graph[at] {
			if !seen[to] {
				seen[to] = true
				all = append(all, to)
				next = append(next, to)
			}
		}
	}
	slices.Sort(all)
	return all
}

// maxGraph bounds the output of `terraform graph`.
const maxGraph = 32 << 20

// ParseGraph reads the edges of the resource graph that Terraform writes for Graphviz, in lines like "a.b" -> "c.d";
// its result has the addresses that each depends on directly. The error is about a graph that is too large.
func ParseGraph(dot []byte) (map[string][]string, error) {
	if len(dot) > maxGraph {
		return nil, errors.New("terraform graph: the template is too large")
	}
	graph := map[string][]string{}
	lines := bufio.NewScanner(bytes.NewReader(dot))
	lines.Buffer(nil, maxGraph)
	for lines.Scan() {
		from, to, ok := strings.Cut(strings.TrimSpace(lines.Text()), " -> ")
		if !ok {
			continue
		}
		from, to = graphName(from), graphName(to)
		graph[from] = append(graph[from], to)
	}
	return graph, nil
}

func graphName(quoted string) string {
	name := strings.TrimSuffix(strings.TrimSpace(quoted), ";")
	name = strings.Trim(name, `"`)
	return stripIndexes(strings.TrimSuffix(strings.TrimPrefix(name, "[root] "), " (expand)"))
}
