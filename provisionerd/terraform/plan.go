package terraform

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-exec/tfexec"
	tfjson "github.com/hashicorp/terraform-json"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// planInput is the input of a plan.
type planInput struct {
	t         *template.Source
	variables []*provisionerpb.VariableValue
	facts     facts
	lifted    template.Edited // files of the template with another content
}

// planned is the content of a plan.
type planned struct {
	resources []node // managed, with their dependencies
	data      []node
	graph     map[string][]string
	config    configuration
}

// plan plans the whole template from nothing. Plans contain no dependencies: these come from graph, or, if it is nil, from a graph made
// now.
func (r *runner) plan(ctx context.Context, in planInput, graph map[string][]string) (planned, error) {
	if err := r.refill(in, true); err != nil {
		return planned{}, err
	}
	env, err := r.slot.serve(ctx, in.facts)
	if err != nil {
		return planned{}, err
	}
	shown, err := r.showPlan(ctx, in.t, env)
	if err != nil {
		return planned{}, err
	}
	out := &output{log: r.log}
	if graph == nil {
		err = r.terraform(ctx, env, func(gentle context.Context, _ *tfexec.Terraform) (err error) {
			graph, err = r.graph(gentle)
			return err
		})
		if err != nil {
			return planned{}, r.commandError("read the graph", err, out, in.t)
		}
	}
	p := planned{graph: graph, config: configurationOf(shown)}
	if shown.PlannedValues != nil {
		if p.resources, err = planNodes(shown.PlannedValues.RootModule, tfjson.ManagedResourceMode, graph); err != nil {
			return planned{}, err
		}
	}
	if shown.PriorState != nil && shown.PriorState.Values != nil {
		if p.data, err = planNodes(shown.PriorState.Values.RootModule, tfjson.DataResourceMode, graph); err != nil {
			return planned{}, err
		}
	}
	return p, nil
}

// planFile is where a job stores its plan, in its working folder.
const planFile = "zz_job.plan"

// showPlan makes a plan of the working folder, and reads it.
func (r *runner) showPlan(ctx context.Context, t *template.Source, env map[string]string, more ...tfexec.PlanOption) (*tfjson.Plan, error) {
	if _, err := r.makePlan(ctx, t, env, r.log, append(more, tfexec.Out(planFile))...); err != nil {
		return nil, err
	}
	return r.readPlan(ctx, t, env)
}

// readPlan reads the plan in the working folder.
func (r *runner) readPlan(ctx context.Context, t *template.Source, env map[string]string) (shown *tfjson.Plan, err error) {
	err = r.terraform(ctx, env, func(gentle context.Context, tf *tfexec.Terraform) (err error) {
		discardOutput(tf)
		shown, err = tf.ShowPlanFile(gentle, planFile)
		return err
	})
	if err != nil {
		return nil, r.commandError("read the plan", err, &output{log: r.log}, t)
	}
	return shown, nil
}

// afford returns an error, before anything is made, if the cost of a planned start exceeds the owner's quota. A cost that is known only after the
// apply is judged by the server.
func (r *runner) afford(ctx context.Context, t *template.Source, work *provisionerpb.WorkspaceBuild, env map[string]string) error {
	shown, err := r.readPlan(ctx, t, env)
	if err != nil {
		return err
	}
	if shown.PlannedValues == nil {
		return nil
	}
	nodes, err := planNodes(shown.PlannedValues.RootModule, tfjson.ManagedResourceMode, nil)
	if err != nil {
		return err
	}
	if over := work.GetQuota().Over(work.GetMetadata().GetOwnerName(), plannedCost(nodes)); over != "" {
		return errors.New(over)
	}
	return nil
}

// plannedCost returns the sum of the daily costs in a plan, as far as they are known.
func plannedCost(nodes []node) (cost int64) {
	for _, n := range nodes {
		var m struct {
			DailyCost int32 `json:"daily_cost"`
		}
		if n.typ == "coder_metadata" && json.Unmarshal(n.attrs, &m) == nil {
			cost += int64(m.DailyCost)
		}
	}
	return cost
}

// planNodes returns the resource instances below a module of a plan.
func planNodes(module *tfjson.StateModule, mode tfjson.ResourceMode, graph map[string][]string) ([]node, error) {
	if module == nil {
		return nil, nil
	}
	var all []node
	for _, resource := range module.Resources {
		if resource.Mode != mode {
			continue
		}
		attrs, err := json.Marshal(resource.AttributeValues)
		if err != nil {
			return nil, fmt.Errorf("read plan: %w", err)
		}
		n := node{module: stripIndexes(module.Address), typ: resource.Type, name: resource.Name, index: resource.Index, attrs: attrs}
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

// graph runs `terraform graph` in the slot's sandbox: terraform-exec gives its output no bound.
func (r *runner) graph(ctx context.Context) (map[string][]string, error) {
	cmd := exec.CommandContext(ctx, r.slot.command(), "graph")
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.SysProcAttr = sandbox.ChildAttr()
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	cmd.WaitDelay = 10 * time.Second // for processes that hold the pipes after the program itself has ended
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("terraform graph: %w: %s", err, cleanLine(problems.String()))
	}
	if out.Len() > maxGraph {
		return nil, errors.New("terraform graph: the template is too large")
	}
	return parseGraph(out.Bytes()), nil
}

// parseGraph reads the edges of the resource graph that Terraform writes for Graphviz, in lines like "a.b" -> "c.d";
func parseGraph(dot []byte) map[string][]string {
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
	return graph
}

func graphName(quoted string) string {
	name := strings.TrimSuffix(strings.TrimSpace(quoted), ";")
	name = strings.Trim(name, `"`)
	return stripIndexes(strings.TrimSuffix(strings.TrimPrefix(name, "[root] "), " (expand)"))
}

// dryRun returns what a build with the given parameters would make.
func (r *runner) dryRun(ctx context.Context, work *provisionerpb.TemplateDryRun) *provisionerpb.Result {
	found := &provisionerpb.DryRunResult{}
	result := &provisionerpb.Result{}
	if err := r.dryRunInto(ctx, work, found); err != nil {
		result = r.e.failed(err)
	}
	result.Of = &provisionerpb.Result_TemplateDryRun{TemplateDryRun: found}
	return result
}

func (r *runner) dryRunInto(ctx context.Context, work *provisionerpb.TemplateDryRun, found *provisionerpb.DryRunResult) error {
	r.log.say(provisionerpb.LogLevel_LOG_LEVEL_INFO, "Reading the template")
	t, err := r.e.cache.open(ctx, r)
	if err != nil {
		return err
	}
	if err := errors.Join(checkVariables(t, work.GetVariables()), checkParameters(t, work.GetParameters())); err != nil {
		return err
	}
	r.log.enter(stagePlan)
	plan, err := r.plan(ctx, planInput{t: t, variables: work.GetVariables(), facts: facts{
		transition: "start", metadata: work.GetMetadata(), parameters: work.GetParameters(), token: t.Token, key: t.Key, oidcToken: t.OIDCToken,
	}}, nil)
	if err != nil {
		return err
	}
	found.Resources, err = deriveResources(t, plan.resources)
	return err
}
