package terraform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/hashicorp/terraform-exec/tfexec"
	tfjson "github.com/hashicorp/terraform-json"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/printable"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/result"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// plan plans the whole template from nothing. Plans contain no dependencies: these come from graph, or, if it is nil,
// from a graph made now.
func (r *runner) plan(ctx context.Context, in planInput, graph map[string][]string) (result.Plan, error) {
	if err := r.refill(in, true); err != nil {
		return result.Plan{}, err
	}
	env, err := r.slot.Serve(ctx, in.facts)
	if err != nil {
		return result.Plan{}, err
	}
	shown, err := r.showPlan(ctx, in.t, env)
	if err != nil {
		return result.Plan{}, err
	}
	out := result.NewOutput(r.log, nil)
	if graph == nil {
		err = r.terraform(ctx, env, func(gentle context.Context, _ *tfexec.Terraform) (err error) {
			graph, err = r.graph(gentle)
			return err
		})
		if err != nil {
			return result.Plan{}, r.commandError("read the graph", err, out, in.t)
		}
	}
	return result.ReadPlan(shown, graph)
}

// planFile is where a job stores its plan, in its working folder.
const planFile = "zz_job.plan"

// showPlan makes a plan of the working folder, and reads it.
func (r *runner) showPlan(
	ctx context.Context, t *template.Source, env map[string]string, more ...tfexec.PlanOption,
) (*tfjson.Plan, error) {
	if _, err := r.makePlan(ctx, t, env, r.log, append(more, tfexec.Out(planFile))...); err != nil {
		return nil, err
	}
	return r.readPlan(ctx, t, env)
}

// readPlan reads the plan in the working folder.
func (r *runner) readPlan(
	ctx context.Context, t *template.Source, env map[string]string,
) (shown *tfjson.Plan, err error) {
	err = r.terraform(ctx, env, func(gentle context.Context, tf *tfexec.Terraform) (err error) {
		discardOutput(tf)
		shown, err = tf.ShowPlanFile(gentle, planFile)
		return err
	})
	if err != nil {
		return nil, r.commandError("read the plan", err, result.NewOutput(r.log, nil), t)
	}
	return shown, nil
}

// afford returns an error, before anything is made, if the cost of a planned start exceeds the owner's quota. A cost
// that is known only after the apply is judged by the server.
func (r *runner) afford(
	ctx context.Context, t *template.Source, work *provisionerpb.WorkspaceBuild, env map[string]string,
) error {
	shown, err := r.readPlan(ctx, t, env)
	if err != nil {
		return err
	}
	cost, err := result.Cost(shown)
	if err != nil {
		return err
	}
	if over := work.GetQuota().Over(work.GetMetadata().GetOwnerName(), cost); over != "" {
		return errors.New(over)
	}
	return nil
}

// graph runs `terraform graph` in the slot's sandbox: terraform-exec gives its output no bound.
func (r *runner) graph(ctx context.Context) (map[string][]string, error) {
	cmd := exec.CommandContext(ctx, r.slot.Command(), "graph")
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.SysProcAttr = sandbox.ChildAttr()
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	cmd.WaitDelay = 10 * time.Second // for processes that hold the pipes after the program itself has ended
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("terraform graph: %w: %s", err, printable.Line(problems.String()))
	}
	return result.ParseGraph(out.Bytes())
}

// dryRun returns what a build with the given parameters would make, or change of an existing workspace.
func (r *runner) dryRun(ctx context.Context, work *provisionerpb.TemplateDryRun) *provisionerpb.Result {
	found := &provisionerpb.DryRunResult{}
	res := &provisionerpb.Result{}
	if err := r.dryRunInto(ctx, work, found); err != nil {
		res = r.failed(err)
	}
	res.Of = &provisionerpb.Result_TemplateDryRun{TemplateDryRun: found}
	return res
}

func (r *runner) dryRunInto(
	ctx context.Context, work *provisionerpb.TemplateDryRun, found *provisionerpb.DryRunResult,
) error {
	r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_INFO, "Reading the template")
	t, err := r.open(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(result.CheckVariables(t, work.GetVariables()),
		result.CheckParameters(t, work.GetParameters())); err != nil {
		return err
	}
	r.log.Enter(result.StagePlan)
	if work.GetExisting() != nil {
		found.Plan, err = r.changes(ctx, t, work)
		return err
	}
	plan, err := r.plan(ctx, planInput{t: t, variables: work.GetVariables(), facts: host.Facts{
		Transition: "start", Metadata: work.GetMetadata(), Parameters: work.GetParameters(), Token: t.Token, Key: t.Key,
		OIDCToken: t.OIDCToken,
	}}, nil)
	if err != nil {
		return err
	}
	found.Resources, err = result.DeriveResources(t, plan.Resources)
	return err
}

// changes returns what a start of an existing workspace would change. It plans as a build does, with the same
// confinement, and neither applies the plan nor keeps the state.
func (r *runner) changes(
	ctx context.Context, t *template.Source, work *provisionerpb.TemplateDryRun,
) (*provisionerpb.ChangePlan, error) {
	existing := work.GetExisting()
	if err := r.fill(t, true, work.GetVariables(), existing.GetState(),
		withIDToken(nil, work.GetMetadata())); err != nil {
		return nil, err
	}
	env, err := r.slot.Serve(ctx, host.Facts{
		Transition: "start", Metadata: work.GetMetadata(), Parameters: work.GetParameters(),
		Previous: existing.GetPreviousParameters(), Build: true, Token: t.Token, Key: t.Key, OIDCToken: t.OIDCToken,
	})
	if err != nil {
		return nil, err
	}
	shown, err := r.showPlan(ctx, t, env)
	if err != nil {
		return nil, err
	}
	return result.ChangePlan(shown, existing.GetState())
}

// makePlan plans the working folder, and returns the events that report planned changes; never nil without an error.
func (r *runner) makePlan(
	ctx context.Context, t *template.Source, env map[string]string, log *result.Log, options ...tfexec.PlanOption,
) ([]result.Event, error) {
	events := []result.Event{}
	out := result.NewOutput(log, func(e result.Event) {
		if e.Kind == "planned_change" {
			events = append(events, e)
		}
	})
	err := phase(ctx, phasePlan, func(ctx context.Context) error {
		return r.terraform(ctx, env, func(gentle context.Context, tf *tfexec.Terraform) error {
			_, err := tf.PlanJSON(gentle, out, append(options, tfexec.Lock(false))...)
			return err
		})
	})
	if err != nil {
		return nil, r.commandError("plan", err, out, t)
	}
	return events, nil
}
