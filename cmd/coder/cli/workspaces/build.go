package workspaces

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/form"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// buildOptions are the options that start, restart, stop, update and delete share.
type buildOptions struct {
	params      form.Flags
	yes, noWait bool
	always      bool
	reason      string
	orphan      bool
	tags        []string // for the provisioner
}

// tagsFlag adds the flag with which a build requires tags of its provisioner.
func tagsFlag(cmd *cobra.Command, tags *[]string) {
	cmd.Flags().StringArrayVar(tags, "provisioner-tag", nil, "tag key=value that the provisioner must have in addition to the template's, for this and later builds; may be repeated")
}

// givenTags parses the tags of the flag. It returns nil if none is given: then the previous build's tags apply.
func givenTags(tags []string) (map[string]string, error) {
	if len(tags) == 0 {
		return nil, nil
	}
	return flags.Pairs("provisioner-tag", tags)
}

// sayWaiting prints why a job waits.
func sayWaiting(g *global.Flags, job sdk.ProvisionerJob) {
	if line := waitingLine(job); line != "" {
		fmt.Fprintln(g.Streams().Err, line)
	}
}

// waitingLine returns the reason why a job waits, for a provisioner or for one that is offline, or "" if it does not
// wait or the reason is unknown.
func waitingLine(job sdk.ProvisionerJob) string {
	if job.WaitingReason == "" || job.Status.Ended() {
		return ""
	}
	if job.Status != sdk.JobPending {
		return job.Waiting()
	}
	return fmt.Sprintf("Queued, position %d of %d: %s", job.QueuePosition, job.QueueSize, job.Waiting())
}

const interruptHelp = "An interrupt cancels the build."

func (opts *buildOptions) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&opts.noWait, "no-wait", false, "return without waiting for the build")
	flags.Yes(cmd, &opts.yes)
}

func (opts *buildOptions) startFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&opts.always, "always-prompt", false, "ask for every parameter that can be changed")
	cmd.Flags().StringVar(&opts.reason, "reason", string(sdk.ReasonCLI),
		"reason recorded with the build: cli, ssh_connection, vscode_connection or jetbrains_connection")
}

// onWorkspace finds the workspace, waits for its current build, and runs do.
func onWorkspace(
	g *global.Flags, cmd *cobra.Command, name string, do func(context.Context, *sdk.Client, sdk.Workspace) error,
) error {
	ctx := cmd.Context()
	client, ws, err := find(ctx, g, name)
	if err != nil {
		return err
	}
	if ws, err = g.Follower(client).Settle(ctx, ws); err != nil {
		return err
	}
	return do(ctx, client, ws)
}

// orderStart decides the parameters of a start and sends the request. It returns the request, too.
func orderStart(g *global.Flags, cmd *cobra.Command, client *sdk.Client, ws sdk.Workspace, opts *buildOptions, version uuid.UUID,
	send post) (sdk.WorkspaceBuild, sdk.CreateBuildRequest, error) {
	ctx := cmd.Context()
	tags, err := givenTags(opts.tags)
	if err != nil {
		return sdk.WorkspaceBuild{}, sdk.CreateBuildRequest{}, err
	}
	req := sdk.CreateBuildRequest{
		Transition: sdk.TransitionStart, TemplateVersionID: version, Reason: sdk.BuildReason(opts.reason),
		ProvisionerTags: tags,
	}
	if asksReplacing(g, opts) {
		req.AllowReplacing = []string{}
	}
	// If there is nothing to ask or to check, the server carries over the previous build's parameters, which saves a
	// request. The server refuses if the version needs more.
	ask := opts.always || !opts.params.Empty() || version != uuid.Nil
	if version == uuid.Nil && ws.Outdated &&
		(ws.TemplateRequireActiveVersion || ws.AutomaticUpdates == sdk.UpdatesAlways) {
		version, ask = ws.TemplateActiveVersionID, true
		req.TemplateVersionID = version
	}
	if ask {
		if err := startParameters(g, cmd, client, ws, opts, version, &req); err != nil {
			return sdk.WorkspaceBuild{}, req, err
		}
	}
	if ws.DormantAt != nil {
		fmt.Fprintf(g.Streams().Err, "The workspace %s is dormant. Waking it.\n", ws.FullName())
		if err := client.UpdateDormancy(ctx, ws.ID, sdk.UpdateDormancyRequest{}); err != nil {
			return sdk.WorkspaceBuild{}, req, err
		}
	}
	build, err := send(ctx, ws.ID, req)
	if err != nil && fault.CodeOf(err) == fault.Invalid && !ask {
		if err := startParameters(g, cmd, client, ws, opts, version, &req); err != nil {
			return build, req, err
		}
		build, err = send(ctx, ws.ID, req)
	}
	if err != nil && fault.CodeOf(err) == fault.Invalid {
		return build, req, exit.Try(err, "%s %s --parameter name=value", cmd.CommandPath(), shell.Word(ws.FullName()))
	}
	return build, req, err
}

// startParameters decides the parameters of a start build.
func startParameters(g *global.Flags, cmd *cobra.Command, client *sdk.Client, ws sdk.Workspace, opts *buildOptions, version uuid.UUID, req *sdk.CreateBuildRequest) error {
	ctx := cmd.Context()
	values, defaults, err := opts.params.Given()
	if err != nil {
		return err
	}
	if version == uuid.Nil {
		version = ws.LatestBuild.TemplateVersionID
	}
	previous, err := client.BuildParameters(ctx, ws.LatestBuild.ID)
	if err != nil {
		return err
	}
	known, hidden := form.Previous(previous)
	req.RichParameterValues, err = form.Query{
		Form: form.Of(ctx, client, version, ws.OwnerID), Values: values, Defaults: defaults, Previous: known,
		Hidden: hidden, Always: opts.always, UseDefaults: opts.params.UseDefaults, Ephemeral: opts.params.AskEphemeral,
		Ask: form.Asker(ctx, g.Streams(), opts.yes),
	}.Resolve()
	return exit.Try(err, "%s %s --parameter name=value", cmd.CommandPath(), shell.Word(ws.FullName()))
}

// finish follows a requested build, unless noWait is set.
func finish(
	ctx context.Context, g *global.Flags, client *sdk.Client, ws sdk.Workspace, build sdk.WorkspaceBuild, noWait bool,
) error {
	if noWait {
		fmt.Fprintf(g.Streams().Err, "The %s of %s is queued.\n", build.Transition, ws.FullName())
		sayWaiting(g, build.Job)
		return nil
	}
	if err := g.Follower(client).Build(ctx, ws, build); err != nil {
		return err
	}
	done := map[sdk.Transition]string{
		sdk.TransitionStart: "started", sdk.TransitionStop: "stopped", sdk.TransitionDelete: "deleted",
	}
	fmt.Fprintf(g.Streams().Err, "The workspace %s has been %s.\n", ws.FullName(), done[build.Transition])
	return nil
}
