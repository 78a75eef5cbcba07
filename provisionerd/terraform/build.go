package terraform

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/codermesh/codermesh/v2/internal/disk"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/tty"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/result"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
	"github.com/codermesh/codermesh/v2/provisionerd/tfstate"
)

var errCanceled = errors.New("the job was canceled")

// provisionersDisk begins the sentences about disks that take no more data.
const provisionersDisk = "The provisioner's disk"

// failed returns the result of a job that could not do its work.
func (e *Executor) failed(err error) *provisionerpb.Result {
	err = disk.Explain(err, provisionersDisk, e.disks()...)
	res := &provisionerpb.Result{Error: tty.Clean(err.Error())}
	if coded, ok := errors.AsType[*result.Error](err); ok {
		res.ErrorCode = coded.Code
	}
	return res
}

// disks lists folders whose disks may be full.
func (e *Executor) disks() []string { return []string{e.runDir, e.opts.CacheDir, e.opts.WorkspacesDir} }

// runner runs one job.
type runner struct {
	e     *Executor
	slot  *slot
	offer *provisionerpb.Offer
	run   job.Run
	log   *result.Log
	stop  <-chan struct{}
	bare  bool // the source alone is enough, and is not initialized

	inModules bool // an error was about a module of a registry, or about the version of Terraform
}

// build runs a workspace build: one Terraform process.
func (r *runner) build(ctx context.Context, work *provisionerpb.WorkspaceBuild) *provisionerpb.Result {
	r.log.ShowDebug(work.GetLogLevel() == "debug")
	outcome := &provisionerpb.BuildResult{State: work.GetState()}
	err := r.buildInto(ctx, work, outcome)
	res := &provisionerpb.Result{}
	if err != nil {
		res = r.e.failed(err)
	}
	res.Of = &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: outcome}
	r.log.Enter(result.StageCleanup)
	if err == nil {
		if err := r.endProcess(work); err != nil {
			res.Error = err.Error()
		}
	}
	if res.GetError() == "" && work.GetMetadata().GetPrebuild() && work.GetTransition() == provisionerpb.Transition_TRANSITION_START {
		r.log.Enter(result.StageRehearsal)
		outcome.ClaimPlan, outcome.ClaimWaits = r.rehearse(ctx, work, outcome.GetState())
	}
	return res
}

func (r *runner) buildInto(ctx context.Context, work *provisionerpb.WorkspaceBuild, outcome *provisionerpb.BuildResult) error {
	r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_INFO, "Preparing the template")
	t, err := r.e.cache.open(ctx, r)
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
			r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_INFO, "The workspace has no Terraform state: this build destroys nothing")
			return nil
		}
	case provisionerpb.Transition_TRANSITION_STOP:
	default:
		return fault.New(fault.Invalid, "this provisioner does not support the transition %v: upgrade it", work.GetTransition())
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
	r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "The template no longer allows these values. The job uses them nevertheless: a workspace must always be able to end.")
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

// apply runs Terraform on the template, with other content for some of its files. changed reports whether it began to change a resource.
func (r *runner) apply(
	ctx context.Context, t *template.Source, work *provisionerpb.WorkspaceBuild, transition string, outcome *provisionerpb.BuildResult, edited template.Edited,
) (changed bool, err error) {
	if err := r.fill(t, true, work.GetVariables(), work.GetState(), withIDToken(edited, work.GetMetadata())); err != nil {
		return false, err
	}
	stage := r.log.Stage()
	f := facts{
		transition: transition, metadata: work.GetMetadata(), parameters: work.GetParameters(),
		previous: work.GetPreviousParameters(), build: true, token: t.Token, key: t.Key, oidcToken: t.OIDCToken,
	}
	env, err := r.slot.serve(ctx, f)
	if err != nil {
		return false, err
	}
	folder, err := result.OpenFolder(r.slot.work())
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
			r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "%s has no effect: it belongs to nothing that this workspace has", address)
		}
		for _, line := range result.AppWarnings(resources, work.GetMetadata()) {
			r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "%s", line)
		}
	}
	return len(changes.All()) > 0, cmp.Or(err, rerr)
}

// settle marks unfinished resources in the state and names them in the result. unread is the error of reading a state file,
// or nil; saved is set if Terraform ended normally and its last state was read. settle returns the job's error.
func (r *runner) settle(outcome *provisionerpb.BuildResult, changes []*provisionerpb.Change, failure, unread error, saved bool) error {
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

// sayUnsettled repeats in the log which changes earlier builds began and left unfinished: this build may begin them again.
func (r *runner) sayUnsettled(work *provisionerpb.WorkspaceBuild) {
	if unknown := work.GetUnknown(); len(unknown) > 0 {
		r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN,
			"An earlier build was interrupted. These resources may exist without being in the state, and may be made a second time: %s. Look for them where they are made, and remove what is too many.",
			strings.Join(unknown, ", "))
	}
	if tainted := work.GetTainted(); len(tainted) > 0 {
		r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "An earlier build began these resources and did not finish them. They are made anew: %s.", strings.Join(tainted, ", "))
	}
}

// fill makes the slot's working folder: the source, with other content for some of its files, a link to what init made (unless linked is false),
// variables and state. The folder is new, and is given to the job only when complete.
func (r *runner) fill(t *template.Source, linked bool, variables []*provisionerpb.VariableValue, state []byte, content template.Edited) error {
	dir := r.slot.work()
	r.slot.halt()
	if err := r.slot.renew(dir); err != nil {
		return err
	}
	keep := func(name string) bool {
		_, other := content[name]
		return !other && name != ".terraform" && (linked || name != lockName)
	}
	if err := copyTree(t.Dir, dir, r.slot.own, keep); err != nil {
		return err
	}
	values, err := t.VariablesFile(variables)
	if err != nil {
		return err
	}
	files := map[string][]byte{result.VariablesFile: values}
	if len(state) > 0 {
		files["terraform.tfstate"] = state
	}
	for name, text := range content {
		files[name] = text
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open slot: %w", err)
	}
	defer root.Close()
	for name, text := range files {
		if err := writeNew(root, name, text); err != nil {
			return err
		}
		if err := r.slot.own(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	g := grant{}
	if _, err := os.Lstat(filepath.Join(t.Dir, ".terraform")); linked && err == nil {
		g.read = []string{t.Dir}
		if err := root.Symlink(filepath.Join(t.Dir, ".terraform"), ".terraform"); err != nil {
			return fmt.Errorf("link template: %w", err)
		}
	}
	if err := r.slot.own(dir); err != nil {
		return err
	}
	return r.slot.allow(r.e.withDocker(g, t))
}

// writeNew writes a file that does not exist yet.
func writeNew(root *os.Root, name string, text []byte) error {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// terraform runs one command in the slot, with an environment from slot.serve.
func (r *runner) terraform(ctx context.Context, env map[string]string, command func(context.Context, *tfexec.Terraform) error) error {
	tf := r.slot.tf
	if err := r.slot.equip(env); err != nil {
		return err
	}
	tf.SetStderr(result.NewStderr(r.log))
	defer discardOutput(tf)
	return r.slot.bounded(ctx, func(ctx context.Context) error {
		return supervise(ctx, r.stop, r.slot.pidFile(), func(gentle context.Context) error { return command(gentle, tf) })
	})
}

// commandError describes the failure of a Terraform command for users. t may be nil.
func (r *runner) commandError(doing string, err error, out *result.Output, t *template.Source) error {
	if limit, ok := errors.AsType[*fault.Error](err); ok {
		return limit
	}
	if stopped(r.stop) || errors.Is(err, context.Canceled) {
		return errCanceled
	}
	diags := out.Diagnostics()
	if len(diags) == 0 {
		return fmt.Errorf("%s: Terraform ended without a reason: %w", doing, err)
	}
	texts, code, inModules := result.Explain(diags, t)
	r.inModules = r.inModules || inModules
	said := strings.Join(texts, "\n")
	for _, hint := range []string{hintAbout(said), r.hintAboutProcesses(said)} {
		if hint != "" {
			texts = append(texts, hint)
		}
	}
	if end := r.slot.workerEnd(); end != "" {
		texts = append(texts, "The process that serves the coder provider ended during the job: "+end)
	}
	failure := fault.New(fault.Invalid, "%s", result.CleanLine(strings.Join(texts, "\n")))
	if code != "" {
		return &result.Error{Code: code, Err: failure}
	}
	return failure
}

// hintAbout returns a remedy for errors caused by the confinement of templates, or "" for other errors.
func hintAbout(text string) string {
	lower := strings.ToLower(text)
	switch {
	case strings.Contains(text, "config_path") && strings.Contains(text, "invalid path"):
		return "Jobs have a home folder of their own, without the provisioner's ~/.kube/config. " +
			"Give them the file with --provisioner-file .kube/config=/etc/codermesh/kubeconfig of the provisioner or the server."
	case strings.Contains(text, "CODER_WORKSPACES_DIR: "):
		return `This template starts workspaces on the provisioner's host in the way of an earlier version. Push the starter "process" of this version, or see docs/provisioners.md.`
	case strings.Contains(lower, "docker") && (strings.Contains(lower, "permission denied") || strings.Contains(lower, "cannot connect")):
		return "Docker's socket is given to templates that use a docker provider, from --provisioner-docker-socket of the provisioner, which must be able to use it."
	}
	return ""
}
