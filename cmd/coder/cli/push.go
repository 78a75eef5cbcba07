package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/tty"
)

type pushOptions struct {
	directory     string
	name          string // of the version
	message       string
	variables     []string
	variablesFile string
	tags          []string
	activate      bool
	ignoreLock    bool
	yes           bool
}

// templatesPushCmd makes push, and create, its older name.
func (a *app) templatesPushCmd(verb string) *cobra.Command {
	var o pushOptions
	cmd := &cobra.Command{
		Use:   verb + " [template]",
		Short: "Upload a folder as a template, or as a new version of one",
		Long: `Upload a folder as a new version of a template and follow its import. The template is made when it is new. Version control, Terraform's
own folder and state files are left out. "-d -" reads a tar archive from standard input. An interrupt cancels the import.`,
		Example: `  coder templates push docker -d ./docker -y
  coder templates push docker --variable region=eu -m "newer image"`,
		Hidden: verb == "create",
		Args:   cobra.MaximumNArgs(1),
		RunE:   func(cmd *cobra.Command, args []string) error { return a.push(cmd, args, &o) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.directory, "directory", "d", ".", "folder with the Terraform files, or - for a tar on standard input")
	f.StringVar(&o.name, "name", "", "name of the version (default the server's choice)")
	f.StringVarP(&o.message, "message", "m", "", "what is new")
	f.StringArrayVar(&o.variables, "variable", nil, "Terraform variable name=value; may be repeated")
	f.StringVar(&o.variablesFile, "variables-file", "", "YAML or JSON file with a value per Terraform variable")
	f.StringArrayVar(&o.tags, "provisioner-tag", nil, "tag key=value that the provisioner must have; may be repeated")
	f.BoolVar(&o.activate, "activate", true, "make the version the active one")
	f.BoolVar(&o.ignoreLock, "ignore-lockfile", false, "say nothing when .terraform.lock.hcl is missing")
	yesFlag(cmd, &o.yes)
	return cmd
}

func (a *app) push(cmd *cobra.Command, args []string, o *pushOptions) error {
	ctx := cmd.Context()
	name, err := templateName(args, "", o.directory)
	if err != nil {
		return err
	}
	if cmd.Name() == "create" && len(args) == 0 && o.name != "" {
		name = o.name
	}
	variables, tags, err := o.values()
	if err != nil {
		return err
	}
	client, err := a.client(ctx)
	if err != nil {
		return err
	}
	if err := a.confirmPush(cmd, name, o); err != nil {
		return err
	}
	template, file, err := a.upload(ctx, client, name, o.directory)
	if err != nil {
		return err
	}
	req := sdk.CreateTemplateVersionRequest{
		Name: o.name, Message: o.message, StorageMethod: sdk.StorageFile, FileID: file, Provisioner: sdk.ProvisionerTerraform, Tags: tags,
	}
	if template != nil {
		req.TemplateID = &template.ID
	}
	version, err := a.importVersion(ctx, client, req, variables, name)
	if err != nil {
		return err
	}
	return a.publish(ctx, client, name, template, version, o.activate)
}

// values reads the variables and the tags of the flags.
func (o *pushOptions) values() (variables, tags map[string]string, err error) {
	variables = map[string]string{}
	if o.variablesFile != "" {
		data, err := os.ReadFile(o.variablesFile)
		if err != nil {
			return nil, nil, fault.New(fault.Invalid, "the variables' file cannot be read: %w", err)
		}
		if variables, err = parseValues(data); err != nil {
			return nil, nil, fault.New(fault.Invalid, "the variables' file %s cannot be used: %w", o.variablesFile, err)
		}
	}
	own, err := parsePairs("variable", o.variables)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(variables, own)
	tags, err = parsePairs("provisioner-tag", o.tags)
	return variables, tags, err
}

func (a *app) confirmPush(cmd *cobra.Command, name string, o *pushOptions) error {
	s := a.streams()
	if o.directory == "-" {
		return nil // whoever pipes an archive means it
	}
	if _, err := os.Stat(filepath.Join(o.directory, ".terraform.lock.hcl")); err != nil && s.ErrTTY && !o.ignoreLock {
		fmt.Fprintln(s.Err, s.Dim("note: there is no .terraform.lock.hcl, so that providers may differ between builds (--ignore-lockfile silences this)"))
	}
	return a.confirm(cmd, o.yes, fmt.Sprintf("Upload %s as %s?", o.directory, name), true)
}

// upload stores the source, and looks for the template at the same time; nil when it is new.
func (a *app) upload(ctx context.Context, client *sdk.Client, name, dir string) (*sdk.Template, uuid.UUID, error) {
	var template *sdk.Template
	var file uuid.UUID
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		t, err := client.TemplateByName(ctx, sdk.DefaultOrganization, name)
		switch {
		case err == nil:
			template = &t
		case fault.CodeOf(err) != fault.NotFound:
			return err
		}
		return nil
	})
	group.Go(func() error {
		var source bytes.Buffer
		var err error
		if dir == "-" {
			_, err = io.Copy(&limitedWriter{w: &source, left: maxArchive}, a.streams().In)
		} else {
			err = pack(&source, dir)
		}
		if errors.Is(err, errTooLarge) {
			return fault.New(fault.TooLarge, "the template is larger than %d MiB", maxArchive>>20)
		}
		if err != nil {
			return err
		}
		file, err = client.Upload(ctx, sdk.ContentTypeTar, &source)
		return err
	})
	err := group.Wait()
	return template, file, err
}

// importVersion orders the import and follows it. Variables without a value are asked for on a terminal.
func (a *app) importVersion(ctx context.Context, client *sdk.Client, req sdk.CreateTemplateVersionRequest, variables map[string]string, name string) (sdk.TemplateVersion, error) {
	for {
		req.UserVariableValues = nil
		for _, key := range slices.Sorted(maps.Keys(variables)) {
			req.UserVariableValues = append(req.UserVariableValues, sdk.VariableValue{Name: key, Value: variables[key]})
		}
		version, err := client.CreateTemplateVersion(ctx, sdk.DefaultOrganization, req)
		if err != nil {
			return version, err
		}
		job, err := a.followImport(ctx, client, version.ID)
		if err != nil {
			return version, err
		}
		version.Job = job
		if job.Status == sdk.JobSucceeded {
			return version, nil
		}
		if job.ErrorCode != sdk.JobErrorMissingVariables {
			return version, jobError(job, "the import of "+name, "coder templates push "+name+", after a correction")
		}
		if err := a.askVariables(ctx, client, version.ID, variables, name, job); err != nil {
			return version, err
		}
		req.Name = "" // the failed version has taken the name
	}
}

func (a *app) followImport(ctx context.Context, client *sdk.Client, id uuid.UUID) (sdk.ProvisionerJob, error) {
	return a.follower(client).followJob(ctx, job{
		what: "the import",
		logs: func(ctx context.Context, after int64) iter.Seq2[sdk.JobLog, error] {
			return client.FollowTemplateVersionLogs(ctx, id, after)
		},
		job: func(ctx context.Context) (sdk.ProvisionerJob, error) {
			v, err := client.TemplateVersion(ctx, id)
			return v.Job, err
		},
		cancel: func(ctx context.Context) error { return client.CancelTemplateVersion(ctx, id) },
	})
}

// askVariables puts the values of required variables that have none into variables, or names them in its error.
func (a *app) askVariables(ctx context.Context, client *sdk.Client, version uuid.UUID, variables map[string]string, name string, job sdk.ProvisionerJob) error {
	known, err := client.TemplateVersionVariables(ctx, version)
	if err != nil {
		return err
	}
	var missing []sdk.TemplateVersionVariable
	for _, v := range known {
		if _, given := variables[v.Name]; v.Required && !given {
			missing = append(missing, v)
		}
	}
	if len(missing) == 0 {
		return jobError(job, "the import of "+name, "coder templates push "+name+" --variable name=value")
	}
	if !a.streams().InTTY {
		f := fault.New(fault.Invalid, "the template needs values for its variables")
		var names []string
		for _, v := range missing {
			names = append(names, v.Name)
			f.WithField(v.Name, "--variable "+v.Name+"=… is missing")
		}
		slices.Sort(names)
		return Try(f, "coder templates push %s --variable %s=…", name, strings.Join(names, "=… --variable "))
	}
	for _, v := range missing {
		q := tty.Question{Text: "Variable " + v.Name, Help: v.Description, Secret: v.Sensitive, HasDefault: v.Type == "string"}
		if v.Sensitive {
			q.HasDefault = false
		}
		if variables[v.Name], err = a.streams().Ask(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// publish makes the template of an imported version, or its active version.
func (a *app) publish(ctx context.Context, client *sdk.Client, name string, template *sdk.Template, version sdk.TemplateVersion, activate bool) error {
	s := a.streams()
	if template == nil {
		t, err := client.CreateTemplate(ctx, sdk.DefaultOrganization, sdk.CreateTemplateRequest{Name: name, VersionID: version.ID})
		if err != nil {
			return err
		}
		fmt.Fprintf(s.Err, "Created the template %s. Next: coder create NAME --template %s\n", t.Name, t.Name)
		return nil
	}
	if !activate {
		fmt.Fprintf(s.Err, "Version %s of %s is there, and not active: coder templates versions promote --template %s --template-version %s\n",
			version.Name, name, name, version.Name)
		return nil
	}
	if err := client.UpdateActiveVersion(ctx, template.ID, sdk.UpdateActiveVersionRequest{ID: version.ID}); err != nil {
		return err
	}
	fmt.Fprintf(s.Err, "Version %s of %s is active.\n", version.Name, name)
	return nil
}
