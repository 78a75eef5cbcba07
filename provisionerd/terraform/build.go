package terraform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/provisionerd/job"
	"github.com/codermesh/codermesh/provisionerd/provisionerpb"
)

// Codes of a result's error.
const (
	codeVariables  = "REQUIRED_TEMPLATE_VARIABLES"
	codeParameters = "INVALID_PARAMETERS"
	codeCanceled   = "CANCELED"
)

var errCanceled = errors.New("the job was canceled")

// codedError is an error with one of the codes above.
type codedError struct {
	code string
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// failed is the result of a job that could not do its work.
func failed(err error) *provisionerpb.Result {
	result := &provisionerpb.Result{Error: printable(err.Error())}
	if coded, ok := errors.AsType[*codedError](err); ok {
		result.ErrorCode = coded.code
	}
	return result
}

// runner runs one job.
type runner struct {
	e     *Executor
	slot  *slot
	offer *provisionerpb.Offer
	run   job.Run
	log   *logger
	stop  <-chan struct{}
	bare  bool // the source alone is enough: nothing of it is initialized
}

// build runs a workspace build: one Terraform process.
func (r *runner) build(ctx context.Context, work *provisionerpb.WorkspaceBuild) *provisionerpb.Result {
	r.log.debug = work.GetLogLevel() == "debug"
	outcome := &provisionerpb.BuildResult{State: work.GetState()}
	err := r.buildInto(ctx, work, outcome)
	result := &provisionerpb.Result{}
	if err != nil {
		result = failed(err)
	}
	result.Of = &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: outcome}
	r.log.enter(stageCleanup)
	if err == nil {
		if err := r.endProcess(work); err != nil {
			result.Error = err.Error()
		}
	}
	return result
}

func (r *runner) buildInto(ctx context.Context, work *provisionerpb.WorkspaceBuild, outcome *provisionerpb.BuildResult) error {
	r.log.say(provisionerpb.LogLevel_LOG_LEVEL_INFO, "Preparing the template")
	t, err := r.e.cache.open(ctx, r)
	if err != nil {
		return err
	}
	if err := t.checkVariables(work.GetVariables()); err != nil {
		return err
	}
	stage, transition := stageStop, "stop"
	switch work.GetTransition() {
	case provisionerpb.Transition_TRANSITION_START:
		stage, transition = stageStart, "start"
		if err := t.checkParameters(work.GetParameters()); err != nil {
			return err
		}
	case provisionerpb.Transition_TRANSITION_DELETE:
		stage = stageDelete
		if len(bytes.TrimSpace(work.GetState())) == 0 {
			r.log.enter(stage)
			r.log.say(provisionerpb.LogLevel_LOG_LEVEL_INFO, "Nothing was built: there is nothing to delete")
			return nil
		}
	case provisionerpb.Transition_TRANSITION_STOP:
	default:
		return fault.New(fault.Invalid, "this provisioner does not know the transition %v: upgrade it", work.GetTransition())
	}
	if err := r.fill(t, true, work.GetVariables(), work.GetState()); err != nil {
		return err
	}
	r.log.enter(stage)
	where, env, err := r.slot.serve(ctx, facts{
		transition: transition, metadata: work.GetMetadata(), parameters: work.GetParameters(),
		previous: work.GetPreviousParameters(), build: true, token: t.token, key: t.key,
	})
	if err != nil {
		return err
	}
	changes, err := newTouched(r.slot.touchedFile())
	if err != nil {
		return err
	}
	defer changes.close()
	watch := newWatch(r.slot.work(), r.run.Sink, work.GetState(), transition == "start")
	out := &output{log: r.log, on: func(e event) {
		changes.event(e)
		watch.event(e)
	}}
	err = r.terraform(ctx, env, func(gentle context.Context, tf *tfexec.Terraform) error {
		if work.GetTransition() == provisionerpb.Transition_TRANSITION_DELETE {
			return tf.DestroyJSON(gentle, out, reattach(where), tfexec.Lock(false), tfexec.DisableBackup())
		}
		return tf.ApplyJSON(gentle, out, reattach(where), tfexec.Lock(false), tfexec.DisableBackup())
	})
	if reached := newestOf(watch.close(), stateFiles(r.slot.work())...); reached != nil {
		outcome.State = reached
	}
	resources, rerr := resourcesOf(outcome.State)
	outcome.Resources = resources
	if err != nil {
		failure := r.commandError(strings.ToLower(stage[:1])+stage[1:], err, out, t)
		unknown, failed := changes.lost(outcome.State)
		if len(unknown) == 0 {
			outcome.InFlight = strings.Join(failed, ", ")
			return failure
		}
		outcome.InFlight = strings.Join(unknown, ", ")
		r.log.say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "In flight when Terraform ended, so maybe made without being in the state: %s", outcome.InFlight)
		return fmt.Errorf("%w. In flight, so maybe made without being in the state: %s", failure, outcome.InFlight)
	}
	return rerr
}

// fill makes the slot's working folder: the source, a link to what init made (unless linked is false), variables and state.
func (r *runner) fill(t *template, linked bool, variables []*provisionerpb.VariableValue, state []byte) error {
	return r.fillEdited(t, linked, variables, state, nil)
}

// fillEdited is fill with other content for some of the source's files. The folder is a new one, and the job's only when all is in it.
func (r *runner) fillEdited(t *template, linked bool, variables []*provisionerpb.VariableValue, state []byte, content edited) error {
	dir := r.slot.work()
	r.slot.killLeft()
	if err := r.slot.renew(dir); err != nil {
		return err
	}
	keep := func(name string) bool {
		_, other := content[name]
		return !other && name != ".terraform" && (linked || name != lockName)
	}
	if err := copyTree(t.dir, dir, r.slot.own, keep); err != nil {
		return err
	}
	values, err := t.variablesFile(variables)
	if err != nil {
		return err
	}
	files := map[string][]byte{"zz_job.auto.tfvars.json": values}
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
	if _, err := os.Lstat(filepath.Join(t.dir, ".terraform")); linked && err == nil {
		g.read = []string{t.dir}
		if err := root.Symlink(filepath.Join(t.dir, ".terraform"), ".terraform"); err != nil {
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

// terraform runs one command in the slot.
func (r *runner) terraform(ctx context.Context, env map[string]string, command func(context.Context, *tfexec.Terraform) error) error {
	tf := r.slot.tf
	if err := tf.SetEnv(env); err != nil {
		return fmt.Errorf("set environment: %w", err)
	}
	tf.SetStderr(stderrLines{r.log})
	defer discardOutput(tf)
	return r.slot.bounded(ctx, func(ctx context.Context) error {
		return supervise(ctx, r.stop, r.slot.pidFile(), func(gentle context.Context) error { return command(gentle, tf) })
	})
}

// reattach tells Terraform where the worker serves, also when there is a lock file that names another version.
func reattach(where tfexec.ReattachInfo) *tfexec.ReattachOption { return tfexec.Reattach(where) }

// commandError turns the failure of a Terraform command into words for people. t may be nil.
func (r *runner) commandError(doing string, err error, out *output, t *template) error {
	if limit, ok := errors.AsType[*fault.Error](err); ok {
		return limit
	}
	if stopped(r.stop) || errors.Is(err, context.Canceled) {
		return errCanceled
	}
	diags := out.diagnostics()
	if len(diags) == 0 {
		return fmt.Errorf("%s: Terraform ended without a reason: %w", doing, err)
	}
	var texts []string
	code := ""
	for _, d := range diags {
		text := d.String()
		if name, ok := parameterOf(d, t); ok {
			code = codeParameters
			text = fmt.Sprintf("parameter %q: %s", name, strings.TrimSpace(strings.TrimPrefix(d.Detail, "Error: ")))
			if d.Detail == "" {
				text = fmt.Sprintf("parameter %q: %s", name, d.Summary)
			}
		}
		if d.Summary == "No value for required variable" {
			code = codeVariables
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	const most = 5
	if len(texts) > most {
		texts = append(texts[:most], fmt.Sprintf("and %d more errors, see the log", len(texts)-most))
	}
	failure := fault.New(fault.Invalid, "%s", cleanLine(strings.Join(texts, "\n")))
	if code != "" {
		return &codedError{code: code, err: failure}
	}
	return failure
}

// parameterOf is the name of the parameter that a diagnostic is about.
func parameterOf(d diagnostic, t *template) (string, bool) {
	label, ok := strings.CutPrefix(stripIndexes(d.Address), "data.coder_parameter.")
	if !ok {
		if i := strings.LastIndex(d.Address, ".data.coder_parameter."); i >= 0 {
			return stripIndexes(d.Address[i+len(".data.coder_parameter."):]), true
		}
		return "", false
	}
	if t != nil && t.parameters[label] != "" {
		return t.parameters[label], true
	}
	return label, true
}

// resourcesOf derives the resources of a state; none for no state.
func resourcesOf(text []byte) ([]*provisionerpb.Resource, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	s, err := parseState(text)
	if err != nil {
		return nil, err
	}
	return deriveResources(s.nodes("managed"))
}

const (
	checkpointEvery = time.Second
	// Terraform writes its state shortly after it says that a resource is complete.
	stateDelay    = 3 * time.Millisecond
	stateAttempts = 20
)

// watch follows the state file of a running build: it sends checkpoints, at most one per checkpointEvery, and the resources
// as soon as an agent's token is known, because the agent may knock before the build ends.
type watch struct {
	dir    string
	sink   job.Sink
	agents bool

	wake chan bool // true: the state is about to change
	done chan struct{}
	over sync.WaitGroup
	last []byte // the newest complete state seen; read it after over
}

func newWatch(dir string, sink job.Sink, initial []byte, agents bool) *watch {
	w := &watch{dir: dir, sink: sink, agents: agents, wake: make(chan bool, 1), done: make(chan struct{}), last: initial}
	w.over.Go(w.run)
	return w
}

// event is called for each event of Terraform and does not block.
func (w *watch) event(e event) {
	changed := e.kind == "apply_complete" || e.kind == "apply_errored"
	if !changed && e.kind != "apply_start" {
		return
	}
	select {
	case w.wake <- changed:
	default: // one look is due anyway
	}
}

// close ends the watch, waits for it, and returns the newest complete state that it has seen, or the initial one. The file may
// be torn by now. What the watch has not sent is in the result.
func (w *watch) close() []byte {
	close(w.done)
	w.over.Wait()
	return w.last
}

func (w *watch) run() {
	var sent time.Time
	var pending []byte
	tokens := ""
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-w.done:
			return
		case <-timer.C:
			if pending != nil {
				w.sink.Checkpoint(pending)
				pending, sent = nil, time.Now()
			}
			timer.Reset(time.Hour)
			continue
		case changed := <-w.wake:
			text, s := w.look(w.last, changed)
			if s == nil {
				continue
			}
			w.last, pending = text, text
			if w.agents {
				tokens = w.report(s, tokens)
			}
		}
		if wait := checkpointEvery - time.Since(sent); wait > 0 {
			timer.Reset(wait)
			continue
		}
		w.sink.Checkpoint(pending)
		pending, sent = nil, time.Now()
	}
}

// look reads the state until it differs from last; once only when no change is expected.
func (w *watch) look(last []byte, expected bool) ([]byte, *state) {
	for range stateAttempts {
		select {
		case <-w.done:
			return nil, nil
		case <-time.After(stateDelay):
		}
		text, err := os.ReadFile(filepath.Join(w.dir, "terraform.tfstate"))
		if err == nil && !bytes.Equal(text, last) {
			if s, err := parseState(text); err == nil {
				return text, s
			}
		}
		if !expected && err == nil {
			return nil, nil
		}
	}
	return nil, nil
}

// report sends the resources when the agents' tokens are others than known, and returns the tokens.
func (w *watch) report(s *state, known string) string {
	resources, err := deriveResources(s.nodes("managed"))
	if err != nil {
		return known // half-built states may be odd; the result reports what stays wrong
	}
	tokens := ""
	for _, r := range resources {
		for _, a := range r.GetAgents() {
			tokens += a.GetToken() + "\n"
		}
	}
	if tokens != known && tokens != "" {
		w.sink.Resources(resources)
	}
	return tokens
}
