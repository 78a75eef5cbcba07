package terraform

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/result"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
	"github.com/codermesh/codermesh/v2/provisionerd/tfstate"
)

// build runs a workspace build: one Terraform process.
func (r *runner) build(ctx context.Context, work *provisionerpb.WorkspaceBuild) *provisionerpb.Result {
	r.log.ShowDebug(work.GetLogLevel() == "debug")
	outcome := &provisionerpb.BuildResult{State: work.GetState()}
	err := r.buildInto(ctx, work, outcome)
	res := &provisionerpb.Result{}
	if err != nil {
		res = r.failed(err)
	}
	res.Of = &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: outcome}
	r.log.Enter(result.StageCleanup)
	if err == nil {
		if err := r.endProcess(work); err != nil {
			res.Error = err.Error()
		}
	}
	if res.GetError() == "" && work.GetMetadata().GetPrebuild() &&
		work.GetTransition() == provisionerpb.Transition_TRANSITION_START {
		r.log.Enter(result.StageRehearsal)
		outcome.ClaimPlan, outcome.ClaimWaits = r.rehearse(ctx, work, outcome.GetState())
	}
	return res
}

func (r *runner) buildInto(
	ctx context.Context, work *provisionerpb.WorkspaceBuild, outcome *provisionerpb.BuildResult,
) error {
	r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_INFO, "Preparing the template")
	t, err := r.open(ctx)
	if err != nil {
		return err
	}
	if err := result.CheckVariables(t, work.GetVariables()); err != nil {
		return err
	}
	stage, transition := result.StageStop, "stop"
	switch work.GetTransition() {
	case provisionerpb.Transition_TRANSITION_START:
		stage, transition = result.StageStart, "start"
		if err := result.CheckParameters(t, work.GetParameters()); err != nil {
			return err
		}
	case provisionerpb.Transition_TRANSITION_DELETE:
		stage = result.StageDelete
		if len(bytes.TrimSpace(work.GetState())) == 0 {
			r.log.Enter(stage)
			r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_INFO,
				"The workspace has no Terraform state: this build destroys nothing")
			return nil
		}
	case provisionerpb.Transition_TRANSITION_STOP:
	default:
		return fault.New(fault.Invalid, "this provisioner does not support the transition %v: upgrade it",
			work.GetTransition())
	}
	r.log.Enter(stage)
	r.sayUnsettled(work)
	changed, err := r.apply(ctx, t, work, transition, outcome, nil)
	if transition == "start" || changed || !refusesParameters(err) {
		return err
	}
	edited, lifted := t.WithoutRules()
	if lifted != nil {
		return err
	}
	r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN,
		"The template no longer allows these values. The job uses them nevertheless: a workspace must always be able "+
			"to end.")
	if _, again := r.apply(ctx, t, work, transition, outcome, edited); !refusesParameters(again) {
		return again
	}
	return err
}

// refusesParameters reports whether a build ended because of its parameters' values.
func refusesParameters(err error) bool {
	coded, ok := errors.AsType[*result.Error](err)
	return ok && coded.Code == result.CodeParameters
}

// apply runs Terraform on the template, with other content for some of its files. changed reports whether it began to
// change a resource.
func (r *runner) apply(
	ctx context.Context, t *template.Source, work *provisionerpb.WorkspaceBuild, transition string,
	outcome *provisionerpb.BuildResult, edited template.Edited,
) (changed bool, err error) {
	if err := r.fill(t, true, work.GetVariables(), work.GetState(),
		withIDToken(edited, work.GetMetadata())); err != nil {
		return false, err
	}
	stage := r.log.Stage()
	f := host.Facts{
		Transition: transition, Metadata: work.GetMetadata(), Parameters: work.GetParameters(),
		Previous: work.GetPreviousParameters(), Build: true, Token: t.Token, Key: t.Key, OIDCToken: t.OIDCToken,
	}
	env, err := r.slot.Serve(ctx, f)
	if err != nil {
		return false, err
	}
	folder, err := result.OpenFolder(r.slot.Work())
	if err != nil {
		return false, err
	}
	defer folder.Close()
	env, planned, err := r.planFirst(ctx, t, work, f, env, outcome)
	if err != nil {
		return false, err
	}
	var approved []tfexec.ApplyOption // the plan to apply, if it was made before
	if planned != nil {
		approved = append(approved, tfexec.DirOrPlan(planFile))
	}
	changes := result.NewChanges(r.run.Sink)
	watch := result.NewWatch(folder, r.run.Sink, work.GetState(), transition == "start")
	for _, e := range planned {
		watch.Event(e)
	}
	var dump []byte // written by Terraform's output, read after it ends
	phases := newPhases(work.GetTransition(), len(approved) > 0)
	out := result.NewOutput(r.log, func(e result.Event) {
		changes.Event(e)
		watch.Event(e)
		phases.event(e)
		if e.Dump != nil {
			dump = e.Dump
		}
	})
	err = r.terraform(ctx, env, func(gentle context.Context, tf *tfexec.Terraform) error {
		if work.GetTransition() == provisionerpb.Transition_TRANSITION_DELETE {
			return tf.DestroyJSON(gentle, out, tfexec.Lock(false), tfexec.DisableBackup())
		}
		return tf.ApplyJSON(gentle, out, append(approved, tfexec.Lock(false), tfexec.DisableBackup())...)
	})
	phases.record(ctx, err != nil)
	found, unread := folder.States()
	if unread != nil {
		r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_ERROR, "A state file of the job cannot be used: %v", unread)
	}
	found = append(found, dump) // what Terraform prints because it cannot write a file is the newest
	if reached := result.Newest(watch.Close(), found...); reached != nil {
		outcome.State = reached
	}
	saved := unread == nil && endedItself(err) && (dump != nil || !out.Unsaved())
	if err != nil {
		err = r.commandError(strings.ToLower(stage[:1])+stage[1:], err, out, t)
	}
	err = r.settle(outcome, changes.All(), err, unread, saved)
	if err == nil && transition == "stop" {
		outcome.Created = result.Created(changes.All())
	}
	resources, strays, rerr := result.ReadResources(t, outcome.State)
	outcome.Resources = resources
	if err == nil && transition == "start" {
		for _, address := range strays {
			r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN,
				"%s has no effect: nothing in this workspace uses it", address)
		}
		for _, line := range result.AppWarnings(resources, work.GetMetadata()) {
			r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "%s", line)
		}
	}
	return len(changes.All()) > 0, cmp.Or(err, rerr)
}

// settle marks unfinished resources in the state and names them in the result. unread is the error of reading a state
// file, or nil; saved is set if Terraform ended normally and its last state was read. settle returns the job's error.
func (r *runner) settle(
	outcome *provisionerpb.BuildResult, changes []*provisionerpb.Change, failure, unread error, saved bool,
) error {
	switch {
	case failure == nil && unread == nil:
		return nil
	case failure == nil:
		failure = fmt.Errorf("read the state: %w", unread)
	}
	lost, state := tfstate.Settle(outcome.GetState(), changes, saved)
	outcome.State, outcome.Unknown, outcome.Tainted = state, lost.Unknown, lost.Tainted
	inFlight := slices.Concat(lost.Unknown, lost.Tainted)
	if len(inFlight) == 0 {
		inFlight = lost.Failed
	}
	outcome.InFlight = strings.Join(inFlight, ", ")
	sentence := lost.Sentence()
	if sentence == "" {
		return failure
	}
	r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "%s", sentence)
	return fmt.Errorf("%w. %s", failure, sentence)
}

// endedItself reports whether a Terraform command that returned err was not killed and did not crash.
func endedItself(err error) bool {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode() == 1
	}
	return err == nil || errors.Is(err, context.Canceled) // an interrupted Terraform may end without an error
}

// sayUnsettled repeats in the log which changes earlier builds began and left unfinished: this build may begin them
// again.
func (r *runner) sayUnsettled(work *provisionerpb.WorkspaceBuild) {
	if unknown := work.GetUnknown(); len(unknown) > 0 {
		r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN,
			"An earlier build was interrupted. These resources may exist without being in the state, and may be made "+
				"a second time: %s. Check your provider for duplicates and remove them.",
			strings.Join(unknown, ", "))
	}
	if tainted := work.GetTainted(); len(tainted) > 0 {
		r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN,
			"An earlier build began these resources and did not finish them. They are made anew: %s.",
			strings.Join(tainted, ", "))
	}
}

// endProcess ends the process of a workspace that was stopped, and removes the folder of one that was deleted, even if
// the template did not request it.
func (r *runner) endProcess(work *provisionerpb.WorkspaceBuild) error {
	id, err := uuid.FromBytes(work.GetMetadata().GetWorkspaceId())
	if err != nil || id == uuid.Nil {
		return nil //nolint:nilerr // without a workspace there is no process
	}
	switch work.GetTransition() {
	case provisionerpb.Transition_TRANSITION_STOP:
		return r.host.StopWorkspace(id)
	case provisionerpb.Transition_TRANSITION_DELETE:
		return r.host.RemoveWorkspace(id)
	default:
		return nil
	}
}
