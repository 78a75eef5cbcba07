package terraform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/codermesh/codermesh/v2/internal/disk"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/tty"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/printable"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/result"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// provisionersDisk begins the sentences about disks that take no more data.
const provisionersDisk = "The provisioner's disk"

// failed returns the result of a job that could not do its work.
func failed(h *host.Host, err error) *provisionerpb.Result {
	err = disk.Explain(err, provisionersDisk, h.Disks()...)
	res := &provisionerpb.Result{Error: tty.Clean(err.Error())}
	if coded, ok := errors.AsType[*result.Error](err); ok {
		res.ErrorCode = coded.Code
	}
	return res
}

// runner runs one job.
type runner struct {
	host    *host.Host
	cache   *cache
	timeout time.Duration // of the job; 0 means none
	slot    *host.Slot
	offer   *provisionerpb.Offer
	run     job.Run
	log     *result.Log
	stop    <-chan struct{}
	bare    bool // the source alone is enough, and is not initialized

	inModules bool // an error was about a module of a registry, or about the version of Terraform
}

// failed returns the result of a job that could not do its work.
func (r *runner) failed(err error) *provisionerpb.Result { return failed(r.host, err) }

// open returns the job's template from the cache.
func (r *runner) open(ctx context.Context) (*template.Source, error) {
	return r.cache.open(ctx, opening{
		sum: r.offer.GetSourceSha256(), source: r.run.Source, bare: r.bare, slot: r.slot, log: r.log, stop: r.stop,
		explain: func(doing string, err error, out *result.Output) error { return r.commandError(doing, err, out, nil) },
	})
}

// fill makes the slot's working folder: the source, with other content for some of its files, a link to what init made
// (unless linked is false), variables and state. The folder is new, and is given to the job only when complete.
func (r *runner) fill(
	t *template.Source, linked bool, variables []*provisionerpb.VariableValue, state []byte, content template.Edited,
) error {
	dir := r.slot.Work()
	r.slot.Halt()
	if err := r.slot.Renew(dir); err != nil {
		return err
	}
	keep := func(name string) bool {
		_, other := content[name]
		return !other && name != ".terraform" && (linked || name != lockName)
	}
	if err := copyTree(t.Dir, dir, r.slot.Own, keep); err != nil {
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
		if err := r.slot.Own(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	g := host.Grant{}
	if _, err := os.Lstat(filepath.Join(t.Dir, ".terraform")); linked && err == nil {
		g.Read = []string{t.Dir}
		if err := root.Symlink(filepath.Join(t.Dir, ".terraform"), ".terraform"); err != nil {
			return fmt.Errorf("link template: %w", err)
		}
	}
	if err := r.slot.Own(dir); err != nil {
		return err
	}
	return r.slot.Allow(r.host.WithDocker(g, t.Dir))
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
func (r *runner) terraform(
	ctx context.Context, env map[string]string, command func(context.Context, *tfexec.Terraform) error,
) error {
	tf := r.slot.Terraform()
	if err := r.slot.Equip(env); err != nil {
		return err
	}
	tf.SetStderr(result.NewStderr(r.log))
	defer discardOutput(tf)
	return r.slot.Bounded(ctx, func(ctx context.Context) error {
		return host.Supervise(ctx, r.stop, r.slot.PidFile(),
			func(gentle context.Context) error { return command(gentle, tf) })
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
	for _, hint := range []string{hintAbout(said), r.slot.HintAboutProcesses(said)} {
		if hint != "" {
			texts = append(texts, hint)
		}
	}
	if end := r.slot.WorkerEnd(); end != "" {
		texts = append(texts, "The process that serves the coder provider ended during the job: "+end)
	}
	failure := fault.New(fault.Invalid, "%s", printable.Line(strings.Join(texts, "\n")))
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
	case strings.Contains(lower, "docker") && (strings.Contains(lower, "permission denied") ||
		strings.Contains(lower, "cannot connect")):
		return "Docker's socket is given to templates that use a docker provider, from --provisioner-docker-socket " +
			"of the provisioner, which must be able to use it."
	}
	return ""
}

// discardSink discards logs.
type discardSink struct{}

func (discardSink) Log(*provisionerpb.LogLine) {}

func (discardSink) Change(*provisionerpb.Change) {}

func (discardSink) Checkpoint([]byte) {}

func (discardSink) Resources([]*provisionerpb.Resource) {}

// refill makes a new working folder and fills it with the template, as edited. linked adds what init made.
func (r *runner) refill(in planInput, linked bool) error {
	return r.fill(in.t, linked, in.variables, nil, in.lifted)
}

// planInput is the input of a plan.
type planInput struct {
	t         *template.Source
	variables []*provisionerpb.VariableValue
	facts     host.Facts
	lifted    template.Edited // files of the template with another content
}

// discardOutput stops terraform-exec from writing to its last writer.
func discardOutput(tf *tfexec.Terraform) {
	tf.SetStdout(io.Discard)
	tf.SetStderr(io.Discard)
}

// withIDToken adds the file with the build's ID token to the files of a job that differ from the template's, if it has
// one.
func withIDToken(edited template.Edited, m *provisionerpb.Metadata) template.Edited {
	if m.GetIdToken() == "" {
		return edited
	}
	all := template.Edited{host.IDTokenFile: []byte(m.GetIdToken())}
	maps.Copy(all, edited)
	return all
}
