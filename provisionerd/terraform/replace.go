package terraform

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/printable"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/result"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// A build must not destroy a user's data unless it deletes the workspace or someone allowed it. Whatever a workspace
// keeps while it is stopped may hold data, such as a volume with the home folder. A start or stop with a Replacement
// message therefore plans first, and ends before it changes anything if the plan replaces or deletes a kept resource
// that the message does not list.
//
// Which resources of the state are kept:
//
//   - After a stop, all of them, because the stop removed the others, except those that the stop created. Some
//     templates make a resource anew in every build, for example because it depends on the time or on an agent's token.
//     The workspace has not run with it yet.
//   - Otherwise the workspace may run, and its state also has what a stop removes, such as a container that each update
//     replaces. A second plan tells, of the other transition with the same version and values: what the start replaces
//     or keeps and the stop only deletes is not kept. What both delete counts as kept, because the template no longer
//     says.
//   - A stop with the version and the values of the last successful build needs no second plan: it deletes what a stop
//     deletes.
//   - A stop also does not keep what every build makes anew: resources that it replaces for values alone that Terraform
//     learns only when it makes them, such as the time, or that are sensitive, such as an agent's token.
//   - Never those that hold no data (dataless), and those that are tainted: their creation did not finish.

// planFirst makes the plan of a build that must be checked before it changes anything, and checks it. It returns the
// events of the plan in planFile, or nil if the build needs no check and no plan was made. env comes from slot.serve
// with f; the returned one replaces it.
func (r *runner) planFirst(
	ctx context.Context, t *template.Source, work *provisionerpb.WorkspaceBuild, f host.Facts, env map[string]string,
	outcome *provisionerpb.BuildResult,
) (newEnv map[string]string, planned []result.Event, err error) {
	costs := work.GetQuota() != nil && t.Cost
	if !costs && !result.Guarded(work) {
		return env, nil, nil
	}
	if planned, err = r.makePlan(ctx, t, env, r.log, tfexec.Out(planFile)); err != nil {
		return env, nil, err
	}
	if costs {
		if err := r.afford(ctx, t, work, env); err != nil {
			return env, nil, err
		}
	}
	if result.Guarded(work) {
		env, err = r.keep(ctx, t, work, f, env, planned, outcome)
	}
	return env, planned, err
}

// keep returns an error if the planned build would replace or delete a kept resource without permission.
func (r *runner) keep(
	ctx context.Context, t *template.Source, work *provisionerpb.WorkspaceBuild, f host.Facts, env map[string]string,
	planned []result.Event, outcome *provisionerpb.BuildResult,
) (newEnv map[string]string, err error) {
	replacement := work.GetReplacement()
	lost := slices.DeleteFunc(result.Lost(planned, work.GetState()),
		func(e result.Event) bool { return slices.Contains(replacement.GetFresh(), e.Addr) })
	excess := func() bool {
		return slices.ContainsFunc(lost,
			func(e result.Event) bool { return !slices.Contains(replacement.GetAllowed(), e.Addr) })
	}
	if excess() && f.Transition == "stop" {
		if lost, err = r.withoutAnew(ctx, t, env, replacement, lost); err != nil {
			return env, err
		}
	}
	if excess() && !replacement.GetStopped() {
		if lost, env, err = r.withoutMomentary(ctx, t, f, env, replacement, lost); err != nil {
			return env, err
		}
	}
	if !excess() {
		for _, e := range lost {
			r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "%s is %sd, which was allowed. Its data is lost.", e.Addr,
				e.Action)
		}
		return env, nil
	}
	for _, e := range lost {
		outcome.Replaces = append(outcome.Replaces, printable.Line(e.Addr))
	}
	if !replacement.GetStopped() { // what runs stays
		resources, _, err := result.ReadResources(t, outcome.State)
		if err != nil {
			return env, err
		}
		outcome.Resources = resources
	}
	way := "start or update the workspace on a terminal or on its page"
	if f.Transition == "stop" {
		way = "stop the workspace on a terminal or on its page"
	}
	return env, &result.Error{Code: result.CodeReplaces, Err: fault.New(fault.Conflict,
		"this %s would replace or delete what the workspace keeps, and its data would be lost: %s. Nothing was "+
			"changed. "+
			"To be asked, %s. To allow it for every workspace of the template: coder templates edit %s "+
			"--allow-replacing-resources",
		f.Transition, strings.Join(outcome.Replaces, ", "), way, shell.POSIX(work.GetMetadata().GetTemplateName()))}
}

// withoutMomentary omits the resources that exist only while the workspace runs: a stop deletes them, and a start makes
// or keeps them.
func (r *runner) withoutMomentary(
	ctx context.Context, t *template.Source, f host.Facts, env map[string]string,
	replacement *provisionerpb.Replacement, lost []result.Event,
) (kept []result.Event, newEnv map[string]string, err error) {
	transition := f.Transition
	is := func(events []result.Event, addr, action string) bool {
		return slices.ContainsFunc(events, func(e result.Event) bool { return e.Addr == addr && e.Action == action })
	}
	if transition == "stop" && replacement.GetSame() {
		return slices.DeleteFunc(lost, func(e result.Event) bool { return e.Action == "delete" }), env, nil
	}
	if transition == "stop" && !slices.ContainsFunc(lost, func(e result.Event) bool { return e.Action == "delete" }) {
		return lost, env, nil
	}
	f.Transition = map[string]string{"start": "stop", "stop": "start"}[transition]
	otherEnv, err := r.slot.Serve(ctx, f)
	if err != nil {
		return nil, env, err
	}
	other, failed := r.makePlan(ctx, t, otherEnv, result.NewLog(discardSink{}))
	if errors.Is(failed, errCanceled) {
		return nil, env, failed
	}
	f.Transition = transition
	if env, err = r.slot.Serve(ctx, f); err != nil {
		return nil, env, err
	}
	return slices.DeleteFunc(lost, func(e result.Event) bool {
		switch {
		case failed != nil: // without a plan of the other transition, everything counts as kept
			return false
		case transition == "start":
			return e.Action == "replace" && is(other, e.Addr, "delete")
		}
		return e.Action == "delete" && !is(other, e.Addr, "delete")
	}), env, nil
}

// withoutAnew omits the resources that every build makes anew. It reads the plan in the working folder.
func (r *runner) withoutAnew(
	ctx context.Context, t *template.Source, env map[string]string, replacement *provisionerpb.Replacement,
	lost []result.Event,
) ([]result.Event, error) {
	if !slices.ContainsFunc(lost, func(e result.Event) bool { return e.Action == "replace" }) {
		return lost, nil
	}
	shown, err := r.readPlan(ctx, t, env)
	if err != nil {
		return nil, err
	}
	return result.WithoutUnforeseen(shown, replacement.GetSame(), lost), nil
}
