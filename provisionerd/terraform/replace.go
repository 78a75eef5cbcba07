package terraform

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/provisionerd/terraform/template"
	"github.com/codermesh/codermesh/provisionerd/tfstate"
)

// A start must not destroy a user's data unless someone allowed it. Whatever a workspace keeps while it is stopped may hold data, such as a
// volume with the home folder. A start with a Replacement message therefore plans first, and ends before it changes anything if the plan
// replaces or deletes a kept resource that the message does not list.
//
// Which resources of the state are kept:
//
//   - After a stop, all of them, because the stop removed the others, except those that the stop created. Some templates make a resource anew in
//     every build, for example because it depends on the time or on an agent's token. The workspace has not run with it yet.
//   - Otherwise the workspace may run, and its state also has what a stop removes, such as a container that each update replaces. A second plan,
//     of a stop, tells: what the start replaces and the stop only deletes is not kept. What the start deletes counts as kept, because the
//     template no longer says.
//   - Never those that hold no data (dataless), and those that are tainted: their creation did not finish.

// codeReplaces is the code of a start that would replace a kept resource that it may not replace.
const codeReplaces = "REPLACES_RESOURCES"

// dataless lists the beginnings of the types of resources that hold no data of a user: they exist in the state alone, or are made again from
// what the template says.
var dataless = []string{"coder_", "random_", "time_", "tls_", "docker_image", "docker_registry_image"}

func holdsData(typ string) bool {
	return !slices.ContainsFunc(dataless, func(beginning string) bool { return strings.HasPrefix(typ, beginning) })
}

// guarded reports whether a build's plan must be checked: not everything may be replaced, and the state has resources that may hold data.
func guarded(work *provisionerpb.WorkspaceBuild) bool {
	if work.GetReplacement() == nil || work.GetTransition() != provisionerpb.Transition_TRANSITION_START {
		return false
	}
	s, err := parseState(work.GetState())
	return err == nil && slices.ContainsFunc(s.nodes("managed"), func(n node) bool { return holdsData(n.typ) })
}

// planFirst makes the plan of a build that must be checked before it changes anything, and checks it. It returns the events of the plan in
// planFile, or nil if the build needs no check and no plan was made. env comes from slot.serve with f; the returned one replaces it.
func (r *runner) planFirst(
	ctx context.Context, t *template.Source, work *provisionerpb.WorkspaceBuild, f facts, env map[string]string, outcome *provisionerpb.BuildResult,
) (newEnv map[string]string, planned []event, err error) {
	costs := work.GetQuota() != nil && t.Cost
	if !costs && !guarded(work) {
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
	if guarded(work) {
		env, err = r.keep(ctx, t, work, f, env, planned, outcome)
	}
	return env, planned, err
}

// keep returns an error if the planned start would replace or delete a kept resource without permission.
func (r *runner) keep(
	ctx context.Context, t *template.Source, work *provisionerpb.WorkspaceBuild, f facts, env map[string]string, planned []event, outcome *provisionerpb.BuildResult,
) (map[string]string, error) {
	lost := slices.DeleteFunc(lostBy(planned, work.GetState()), func(e event) bool {
		return slices.Contains(work.GetReplacement().GetFresh(), e.addr)
	})
	excess := func() bool {
		return slices.ContainsFunc(lost, func(e event) bool { return !slices.Contains(work.GetReplacement().GetAllowed(), e.addr) })
	}
	if excess() && !work.GetReplacement().GetStopped() {
		f.transition = "stop"
		stopEnv, err := r.slot.serve(ctx, f)
		if err != nil {
			return env, err
		}
		stopping, err := r.makePlan(ctx, t, stopEnv, &logger{sink: discardSink{}})
		if errors.Is(err, errCanceled) {
			return env, err
		}
		lost = withoutMomentary(lost, stopping) // without a plan of the stop, everything counts as kept
		f.transition = "start"
		if env, err = r.slot.serve(ctx, f); err != nil {
			return env, err
		}
	}
	if !excess() {
		for _, e := range lost {
			r.log.say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "%s is %sd, which was allowed. Its data is lost.", e.addr, e.action)
		}
		return env, nil
	}
	for _, e := range lost {
		outcome.Replaces = append(outcome.Replaces, cleanLine(e.addr))
	}
	if !work.GetReplacement().GetStopped() { // what runs stays
		resources, _, err := resourcesOf(t, outcome.State)
		if err != nil {
			return env, err
		}
		outcome.Resources = resources
	}
	return env, &codedError{code: codeReplaces, err: fault.New(fault.Conflict,
		"this start would replace or delete what the workspace keeps, and its data would be lost: %s. Nothing was changed. "+
			"To be asked, start or update the workspace on a terminal or on its page. To allow it for every workspace of the template: "+
			"coder templates edit %s --allow-replacing-resources",
		strings.Join(outcome.Replaces, ", "), work.GetMetadata().GetTemplateName())}
}

// lostBy returns the planned changes that replace or delete resources of a state that may hold data, sorted by address.
func lostBy(planned []event, state []byte) []event {
	var lost []event
	for _, e := range planned {
		destroys := e.action == "replace" || e.action == "delete"
		if destroys && holdsData(e.resource) && len(tfstate.Tainted(state, []string{e.addr})) == 0 {
			lost = append(lost, e)
		}
	}
	slices.SortFunc(lost, func(a, b event) int { return strings.Compare(a.addr, b.addr) })
	return slices.CompactFunc(lost, func(a, b event) bool { return a.addr == b.addr })
}

// createdBy returns the addresses of the resources that a build's changes created.
func createdBy(changes []*provisionerpb.Change) (created []string) {
	for _, c := range changes {
		if c.GetCreates() && c.GetEnd() == provisionerpb.Change_END_COMPLETE {
			created = append(created, cleanLine(c.GetAddress()))
		}
	}
	return created
}

// withoutMomentary omits the resources that exist only while the workspace runs: the start replaces them, and a stop deletes them.
func withoutMomentary(lost, stopping []event) []event {
	return slices.DeleteFunc(lost, func(e event) bool {
		return e.action == "replace" && slices.ContainsFunc(stopping, func(s event) bool {
			return s.addr == e.addr && s.action == "delete"
		})
	})
}

// makePlan plans the working folder, and returns the events that report planned changes; never nil without an error.
func (r *runner) makePlan(
	ctx context.Context, t *template.Source, env map[string]string, log *logger, options ...tfexec.PlanOption,
) ([]event, error) {
	events := []event{}
	out := &output{log: log, on: func(e event) {
		if e.kind == "planned_change" {
			events = append(events, e)
		}
	}}
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
