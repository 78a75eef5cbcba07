package templates

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
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/follow"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/form"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

type pushOptions struct {
	directory     string
	name          string // of the version
	message       string
	variables     []string
	vars          []string // more of them, by another name of the flag
	variablesFile string
	tags          []string
	activate      bool
	ignoreLock    bool
	yes           bool
	org           organization.Flag
	settings      createSettings // of a new template
}

// createSettings are the flags of create that push does not have: settings of a template, which edit changes later.
type createSettings struct {
	private, active                         bool
	share                                   string
	ttl, failureTTL, dormancy, autoDeletion flags.Days
}

// shareUsage says what both create and edit set.
const shareUsage = "highest `LEVEL` at which workspaces may share ports and apps: owner, organization, authenticated or public"

func (o *createSettings) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.private, "private", false, "do not share a new template with the group Everyone")
	f.BoolVar(&o.active, "require-active-version", false,
		"let workspaces of a new template start with the active version only")
	f.StringVar(&o.share, "max-port-share-level", "", shareUsage)
	f.Var(&o.ttl, "default-ttl", "time after each start until workspaces of a new template stop, such as 8h")
	f.Var(&o.failureTTL, "failure-ttl",
		"time after a failed start until a workspace of a new template is stopped, such as 1h")
	f.Var(&o.dormancy, "dormancy-threshold",
		"time without use until a workspace of a new template becomes dormant, such as 30d")
	f.Var(&o.autoDeletion, "dormancy-auto-deletion",
		"time until a dormant workspace of a new template is deleted, such as 60d")
}

func (o *createSettings) apply(req *sdk.CreateTemplateRequest) {
	req.DisableEveryoneGroupAccess, req.RequireActiveVersion = o.private, o.active
	req.MaxPortShareLevel = (*sdk.AppShare)(&o.share)
	for into, from := range map[**int64]flags.Days{
		&req.DefaultTTLMillis: o.ttl, &req.FailureTTLMillis: o.failureTTL, &req.TimeTilDormantMillis: o.dormancy, &req.TimeTilDormantDeleteMillis: o.autoDeletion,
	} {
		if from != 0 {
			ms := time.Duration(from).Milliseconds()
			*into = &ms
		}
	}
}

// templatesPushCmd returns push, or create, its older name.
func templatesPushCmd(g *global.Flags, verb string) *cobra.Command {
	var opts pushOptions
	cmd := &cobra.Command{
		Use:   verb + " [template]",
		Short: "Create or update a template from a folder",
		Long: `Upload a folder as a new version of a template and follow its import. A template that does not exist is created. Version control folders, .terraform
and state files are left out. "-d -" reads a tar archive from standard input. An interrupt cancels the import.

terraform.tfvars, *.auto.tfvars and their .json forms in the folder set variables as they do in Terraform. --variables-file overrides them, and
--variable overrides both. A variable that none of them sets keeps the value of the active version.

A new template has the display name, description and icon that README.md gives before its text, between two lines of three hyphens, as
those of the starters do. Later they are settings of the template: coder templates edit.`,
		Example: `  coder templates push docker -d ./docker -y
  coder templates push docker --org east
  coder templates push docker --variable region=eu -m "newer image"`,
		Hidden: verb == "create",
		Args:   cobra.MaximumNArgs(1),
		RunE:   func(cmd *cobra.Command, args []string) error { return runPush(g, cmd, args, &opts) },
	}
	f := cmd.Flags()
	f.StringVarP(&opts.directory, "directory", "d", ".",
		"folder with the Terraform files, or - for a tar on standard input")
	f.StringVar(&opts.name, "name", "", "name of the version (default the server's choice)")
	f.StringVarP(&opts.message, "message", "m", "", "description of the change")
	f.StringArrayVar(&opts.variables, "variable", nil, "Terraform variable name=value; may be repeated")
	f.StringArrayVar(&opts.vars, "var", nil, "short name of --variable")
	f.Lookup("var").Hidden = true
	f.StringVar(&opts.variablesFile, "variables-file", "", "YAML or JSON file with a value per Terraform variable")
	f.StringArrayVar(&opts.tags, "provisioner-tag", nil,
		"tag key=value that the provisioner must have; may be repeated")
	f.BoolVar(&opts.activate, "activate", true, "activate the version")
	f.BoolVar(&opts.ignoreLock, "ignore-lockfile", false, "do not warn if .terraform.lock.hcl is missing")
	opts.org.Add(cmd)
	if verb == "create" {
		opts.settings.flags(f)
	}
	flags.Yes(cmd, &opts.yes)
	return cmd
}

func runPush(g *global.Flags, cmd *cobra.Command, args []string, opts *pushOptions) error {
	ctx := cmd.Context()
	name, err := templateName(args, "", opts.directory)
	if err != nil {
		return err
	}
	if cmd.Name() == "create" && len(args) == 0 && opts.name != "" {
		name = opts.name
	}
	variables, tags, err := opts.values()
	if err != nil {
		return err
	}
	client, err := g.Client(ctx)
	if err != nil {
		return err
	}
	org, err := opts.org.Find(ctx, client)
	if err != nil {
		return err
	}
	if err := confirmPush(g, cmd, name, opts); err != nil {
		return err
	}
	template, file, err := upload(ctx, g, client, org.ID, name, opts.directory)
	if err != nil {
		return err
	}
	req := sdk.CreateTemplateVersionRequest{
		Name: opts.name, Message: opts.message, StorageMethod: sdk.StorageFile, FileID: file,
		Provisioner: sdk.ProvisionerTerraform, Tags: tags,
	}
	if template != nil {
		req.TemplateID = &template.ID
	}
	version, err := importVersion(ctx, g, client, org.ID, req, variables, name)
	if err != nil {
		return err
	}
	return publish(ctx, g, client, org.ID, name, template, version, opts)
}

// values parses the variables and the tags of the flags.
func (opts *pushOptions) values() (variables, tags map[string]string, err error) {
	variables = map[string]string{}
	if opts.variablesFile != "" {
		data, err := os.ReadFile(opts.variablesFile)
		if err != nil {
			return nil, nil, fault.New(fault.Invalid, "cannot read the variables file: %w", err)
		}
		if variables, err = form.ParseValues(data); err != nil {
			return nil, nil, fault.New(fault.Invalid, "cannot use the variables file %s: %w", opts.variablesFile, err)
		}
	}
	own, err := flags.Pairs("variable", slices.Concat(opts.variables, opts.vars))
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(variables, own)
	tags, err = flags.Pairs("provisioner-tag", opts.tags)
	return variables, tags, err
}

func confirmPush(g *global.Flags, cmd *cobra.Command, name string, opts *pushOptions) error {
	s := g.Streams()
	if opts.directory == "-" {
		return nil // standard input is not a terminal, and the command is explicit
	}
	if _, err := os.Stat(filepath.Join(opts.directory, ".terraform.lock.hcl")); err != nil && s.ErrTTY &&
		!opts.ignoreLock {
		fmt.Fprintln(s.Err, s.Dim("note: without .terraform.lock.hcl, providers may differ between builds (--ignore-lockfile silences this)"))
	}
	return g.Confirm(cmd, opts.yes, fmt.Sprintf("Upload %s as %s?", opts.directory, name), true)
}

// upload stores the source, and concurrently looks up the template; the result is nil if the template is new.
func upload(
	ctx context.Context, g *global.Flags, client *sdk.Client, org uuid.UUID, name, dir string,
) (*sdk.Template, uuid.UUID, error) {
	var template *sdk.Template
	var file uuid.UUID
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		t, err := client.TemplateByName(ctx, org.String(), name)
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
			_, err = io.Copy(&limitedWriter{w: &source, left: maxArchive}, g.Streams().In)
		} else {
			err = pack(&source, dir)
		}
		if errors.Is(err, errTooLarge) {
			return fault.New(fault.TooLarge, "the template is larger than %d MiB", maxArchive>>20)
		}
		if err != nil {
			return err
		}
		file, err = client.Upload(ctx, sdk.ContentTypeTar, bytes.NewReader(source.Bytes()))
		return err
	})
	err := group.Wait()
	return template, file, err
}

// importVersion requests the import and follows it. On a terminal it asks for variables without a value.
func importVersion(ctx context.Context, g *global.Flags, client *sdk.Client, org uuid.UUID, req sdk.CreateTemplateVersionRequest, variables map[string]string, name string) (sdk.TemplateVersion, error) {
	for {
		req.UserVariableValues = nil
		for _, key := range slices.Sorted(maps.Keys(variables)) {
			req.UserVariableValues = append(req.UserVariableValues, sdk.VariableValue{Name: key, Value: variables[key]})
		}
		version, err := client.CreateTemplateVersion(ctx, org.String(), req)
		if err != nil {
			return version, err
		}
		job, err := followImport(ctx, g, client, version.ID)
		if err != nil {
			return version, err
		}
		version.Job = job
		if job.Status == sdk.JobSucceeded {
			return version, nil
		}
		if job.ErrorCode != sdk.JobErrorMissingVariables {
			return version, follow.JobError(job, "the import of "+name,
				"Correct the template, then run: coder templates push "+shell.Word(name))
		}
		if err := askVariables(ctx, g, client, version.ID, variables, name, job); err != nil {
			return version, err
		}
		req.Name = "" // the failed version has taken the name
	}
}

func followImport(ctx context.Context, g *global.Flags, client *sdk.Client, id uuid.UUID) (sdk.ProvisionerJob, error) {
	atOnce := client.AtOnce() // the follower waits
	return g.Follower(client).Job(ctx, follow.Job{
		What: "the import",
		Logs: func(ctx context.Context, after int64) iter.Seq2[sdk.JobLog, error] {
			return atOnce.FollowTemplateVersionLogs(ctx, id, after)
		},
		Get: func(ctx context.Context) (sdk.ProvisionerJob, error) {
			v, err := atOnce.TemplateVersion(ctx, id)
			return v.Job, err
		},
		Cancel: func(ctx context.Context) error { return client.CancelTemplateVersion(ctx, id) },
	})
}

// askVariables asks for required variables that have no value and adds their values to variables, or names them in its
// error.
func askVariables(ctx context.Context, g *global.Flags, client *sdk.Client, version uuid.UUID, variables map[string]string, name string, job sdk.ProvisionerJob) error {
	known, err := client.TemplateVersionVariables(ctx, version)
	if err != nil {
		return err
	}
	var missing []sdk.TemplateVersionVariable
	for _, v := range known {
		if _, given := variables[v.Name]; v.Required && !given && v.Value == "" { // one with a value has it from the folder
			missing = append(missing, v)
		}
	}
	if len(missing) == 0 {
		return follow.JobError(job, "the import of "+name,
			"coder templates push "+shell.Word(name)+" --variable name=value")
	}
	if !g.Streams().InTTY {
		f := fault.New(fault.Invalid, "the template needs values for its variables")
		var words []string
		for _, v := range missing {
			words = append(words, "--variable "+shell.Word(v.Name)+"=…")
			f = f.WithField(v.Name, "--variable "+v.Name+"=… is missing")
		}
		slices.Sort(words)
		return exit.Try(f, "coder templates push %s %s", shell.Word(name), strings.Join(words, " "))
	}
	for _, v := range missing {
		q := tty.Question{
			Text: "Variable " + v.Name, Help: v.Description, Secret: v.Sensitive, HasDefault: v.Type == "string",
		}
		if v.Sensitive {
			q.HasDefault = false
		}
		if variables[v.Name], err = g.Streams().Ask(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// publish creates the template of an imported version, or makes the version the template's active one.
func publish(ctx context.Context, g *global.Flags, client *sdk.Client, org uuid.UUID, name string, template *sdk.Template, version sdk.TemplateVersion, opts *pushOptions) error {
	s := g.Streams()
	if template == nil {
		imported, err := client.TemplateVersion(ctx, version.ID)
		if err != nil {
			return err
		}
		about := imported.ReadmeMetadata
		req := sdk.CreateTemplateRequest{
			Name: name, DisplayName: about.DisplayName, Description: about.Description, Icon: about.Icon, VersionID: version.ID,
		}
		opts.settings.apply(&req)
		t, err := client.CreateTemplate(ctx, org.String(), req)
		if err != nil {
			return err
		}
		fmt.Fprintf(s.Err, "Created the template %s. Next: coder create NAME --template %s\n", t.Name,
			shell.Word(t.Name))
		return nil
	}
	if !opts.activate {
		fmt.Fprintf(s.Err, "Version %s of %s is ready but not active. Activate it: coder templates versions promote --template %s --template-version %s\n",
			version.Name, name, shell.Word(name), shell.Word(version.Name))
		return nil
	}
	if err := client.UpdateActiveVersion(ctx, template.ID, sdk.UpdateActiveVersionRequest{ID: version.ID}); err != nil {
		return err
	}
	fmt.Fprintf(s.Err, "Version %s of %s is active.\n", version.Name, name)
	return nil
}

// templateName returns the name from the argument, or else the folder's name.
func templateName(args []string, flag, dir string) (string, error) {
	switch {
	case len(args) == 1:
		return args[0], nil
	case flag != "":
		return flag, nil
	case dir == "-":
		return "", exit.Try(fault.New(fault.Invalid, "a template from standard input needs a name"),
			"coder templates push NAME -d -")
	}
	full, err := filepath.Abs(dir)
	if err != nil {
		return "", errors.Join(fault.New(fault.Invalid, "the folder %q cannot be found", dir), err)
	}
	return filepath.Base(full), nil
}
