package workspaces

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/cmd/coder/cli/form"
	"github.com/codermesh/codermesh/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

// buildOptions are what start, restart, stop, update and delete have in common.
type buildOptions struct {
	params      form.Flags
	yes, noWait bool
	always      bool
	reason      string
	orphan      bool
	tags        []string // for the provisioner
}

// tagsFlag adds the flag by which a build asks for a provisioner.
func tagsFlag(cmd *cobra.Command, tags *[]string) {
	cmd.Flags().StringArrayVar(tags, "provisioner-tag", nil, "tag key=value that the provisioner must have in addition to the template's, for this and later builds; may be repeated")
}

// givenTags reads them. Nil: none was given, and those of the build before hold.
func givenTags(tags []string) (map[string]string, error) {
	if len(tags) == 0 {
		return nil, nil
	}
	return flags.Pairs("provisioner-tag", tags)
}

// sayWaiting prints why a job that is not followed does not begin.
func sayWaiting(g *global.Flags, job sdk.ProvisionerJob) {
	if line := waitingLine(job); line != "" {
		fmt.Fprintln(g.Streams().Err, line)
	}
}

// waitingLine is empty for a job that does not wait, and when the reason is unknown.
func waitingLine(job sdk.ProvisionerJob) string {
	if job.Status != sdk.JobPending || job.WaitingReason == "" {
		return ""
	}
	return fmt.Sprintf("Queued, position %d of %d: %s", job.QueuePosition, job.QueueSize, job.WaitingReason)
}

const interruptHelp = "An interrupt cancels the build."

func startCmd(g *global.Flags) *cobra.Command {
	var opts buildOptions
	cmd := &cobra.Command{
		Use:   "start WORKSPACE",
		Short: "Start a workspace",
		Long:  "Start a workspace and follow its build. " + interruptHelp,
		Example: `  coder start dev
  coder start dev --ephemeral-parameter reset=true`,
		Args: flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onWorkspace(g, cmd, args[0], func(_ context.Context, client *sdk.Client, ws sdk.Workspace) error {
				if ws.Running() && opts.params.Empty() {
					fmt.Fprintf(g.Streams().Err, "The workspace %s is already running.\n", ws.FullName())
					return nil
				}
				return startWorkspace(g, cmd, client, ws, &opts, uuid.Nil)
			})
		},
	}
	opts.params.Add(cmd)
	opts.flags(cmd)
	opts.startFlags(cmd)
	tagsFlag(cmd, &opts.tags)
	return cmd
}

func (opts *buildOptions) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&opts.noWait, "no-wait", false, "return without waiting for the build")
	flags.Yes(cmd, &opts.yes)
}

func (opts *buildOptions) startFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&opts.always, "always-prompt", false, "ask for every parameter that can be changed")
	cmd.Flags().StringVar(&opts.reason, "reason", string(sdk.ReasonCLI), "reason recorded with the build: cli, ssh_connection, vscode_connection or jetbrains_connection")
}

// onWorkspace finds the workspace, lets a build that is under way end, and runs do.
func onWorkspace(g *global.Flags, cmd *cobra.Command, name string, do func(context.Context, *sdk.Client, sdk.Workspace) error) error {
	ctx := cmd.Context()
	client, err := g.Client(ctx)
	if err != nil {
		return err
	}
	ws, _, err := target.Find(ctx, client, name)
	if err != nil {
		return err
	}
	if ws, err = g.Follower(client).Settle(ctx, ws); err != nil {
		return err
	}
	return do(ctx, client, ws)
}

// startWorkspace orders a start build, of another version when one is given, and follows it.
func startWorkspace(g *global.Flags, cmd *cobra.Command, client *sdk.Client, ws sdk.Workspace, opts *buildOptions, version uuid.UUID) error {
	build, err := orderStart(g, cmd, client, ws, opts, version, client.CreateBuild)
	if err != nil {
		return err
	}
	return finish(cmd.Context(), g, client, ws, build, opts.noWait)
}

// orderStart decides the parameters of a start and sends its request with post.
func orderStart(g *global.Flags, cmd *cobra.Command, client *sdk.Client, ws sdk.Workspace, opts *buildOptions, version uuid.UUID,
	post func(context.Context, uuid.UUID, sdk.CreateBuildRequest) (sdk.WorkspaceBuild, error)) (sdk.WorkspaceBuild, error) {
	ctx := cmd.Context()
	tags, err := givenTags(opts.tags)
	if err != nil {
		return sdk.WorkspaceBuild{}, err
	}
	req := sdk.CreateBuildRequest{Transition: sdk.TransitionStart, TemplateVersionID: version, Reason: sdk.BuildReason(opts.reason), ProvisionerTags: tags}
	// When there is nothing to ask or to check, the server carries over the parameters of the build before: one request less. It
	// refuses when the version wants more.
	ask := opts.always || !opts.params.Empty() || version != uuid.Nil
	if version == uuid.Nil && ws.Outdated && (ws.TemplateRequireActiveVersion || ws.AutomaticUpdates == sdk.UpdatesAlways) {
		version, ask = ws.TemplateActiveVersionID, true
		req.TemplateVersionID = version
	}
	if ask {
		if err := startParameters(g, cmd, client, ws, opts, version, &req); err != nil {
			return sdk.WorkspaceBuild{}, err
		}
	}
	build, err := post(ctx, ws.ID, req)
	if err != nil && fault.CodeOf(err) == fault.Invalid && !ask {
		if err := startParameters(g, cmd, client, ws, opts, version, &req); err != nil {
			return build, err
		}
		build, err = post(ctx, ws.ID, req)
	}
	if err != nil && fault.CodeOf(err) == fault.Invalid {
		return build, exit.Try(err, "%s %s --parameter name=value", cmd.CommandPath(), ws.FullName())
	}
	return build, err
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
		Form: form.Of(ctx, client, version, ws.OwnerID), Values: values, Defaults: defaults, Previous: known, Hidden: hidden, Always: opts.always, Ask: form.Asker(ctx, g.Streams(), opts.yes),
	}.Resolve()
	return exit.Try(err, "%s %s --parameter name=value", cmd.CommandPath(), ws.FullName())
}

// finish follows an ordered build, unless nobody wants to wait.
func finish(ctx context.Context, g *global.Flags, client *sdk.Client, ws sdk.Workspace, build sdk.WorkspaceBuild, noWait bool) error {
	if noWait {
		fmt.Fprintf(g.Streams().Err, "The %s of %s is queued.\n", build.Transition, ws.FullName())
		sayWaiting(g, build.Job)
		return nil
	}
	if err := g.Follower(client).Build(ctx, ws, build); err != nil {
		return err
	}
	done := map[sdk.Transition]string{sdk.TransitionStart: "started", sdk.TransitionStop: "stopped", sdk.TransitionDelete: "deleted"}
	fmt.Fprintf(g.Streams().Err, "The workspace %s has been %s.\n", ws.FullName(), done[build.Transition])
	return nil
}

func stopCmd(g *global.Flags) *cobra.Command {
	var opts buildOptions
	cmd := &cobra.Command{
		Use:     "stop WORKSPACE",
		Short:   "Stop a workspace",
		Long:    "Stop a workspace and follow its build. Resources that the template keeps while stopped are kept. " + interruptHelp,
		Example: `  coder stop dev -y`,
		Args:    flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onWorkspace(g, cmd, args[0], func(_ context.Context, client *sdk.Client, ws sdk.Workspace) error {
				if ws.Stopped() {
					fmt.Fprintf(g.Streams().Err, "The workspace %s is already stopped.\n", ws.FullName())
					return nil
				}
				if err := g.Confirm(cmd, opts.yes, "Stop "+ws.FullName()+"?", true); err != nil {
					return err
				}
				return stopWorkspace(g, cmd, client, ws, opts.noWait)
			})
		},
	}
	opts.flags(cmd)
	return cmd
}

func stopWorkspace(g *global.Flags, cmd *cobra.Command, client *sdk.Client, ws sdk.Workspace, noWait bool) error {
	build, err := client.CreateBuild(cmd.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStop, Reason: sdk.ReasonCLI})
	if err != nil {
		return err
	}
	return finish(cmd.Context(), g, client, ws, build, noWait)
}

func restartCmd(g *global.Flags) *cobra.Command {
	var opts buildOptions
	cmd := &cobra.Command{
		Use:     "restart WORKSPACE",
		Short:   "Stop a workspace and start it again",
		Long:    "Stop a workspace and start it again, following both builds. An invalid parameter is refused before the workspace stops. " + interruptHelp,
		Example: `  coder restart dev -y`,
		Args:    flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onWorkspace(g, cmd, args[0], func(_ context.Context, client *sdk.Client, ws sdk.Workspace) error {
				if err := g.Confirm(cmd, opts.yes, "Restart "+ws.FullName()+"?", true); err != nil {
					return err
				}
				return restartWorkspace(g, cmd, client, ws, &opts, uuid.Nil)
			})
		},
	}
	opts.params.Add(cmd)
	opts.flags(cmd)
	opts.startFlags(cmd)
	return cmd
}

// restartWorkspace has the server stop and start a workspace, and follows both builds. The server refuses a start that cannot be before it
// stops anything, and starts the workspace even when this program ends meanwhile.
func restartWorkspace(g *global.Flags, cmd *cobra.Command, client *sdk.Client, ws sdk.Workspace, opts *buildOptions, version uuid.UUID) error {
	ctx := cmd.Context()
	build, err := orderStart(g, cmd, client, ws, opts, version, client.Restart)
	if err != nil {
		return err
	}
	if opts.noWait {
		fmt.Fprintf(g.Streams().Err, "The restart of %s is queued.\n", ws.FullName())
		sayWaiting(g, build.Job)
		return nil
	}
	if build.Transition == sdk.TransitionStart {
		return finish(ctx, g, client, ws, build, false)
	}
	if err := finish(ctx, g, client, ws, build, false); err != nil {
		return err
	}
	now, err := client.Workspace(ctx, ws.ID)
	if err != nil {
		return err
	}
	if now.LatestBuild.BuildNumber == build.BuildNumber {
		return exit.Try(fault.New(fault.Conflict, "the workspace %s was stopped but not started again: its template changed in the meantime", ws.FullName()),
			"coder start %s", ws.FullName())
	}
	return finish(ctx, g, client, now, now.LatestBuild, false)
}

func updateCmd(g *global.Flags) *cobra.Command {
	var opts buildOptions
	cmd := &cobra.Command{
		Use:   "update WORKSPACE",
		Short: "Build a workspace with its template's active version",
		Long: `Build a workspace with its template's active version. A running workspace is stopped and started again. Parameters keep their values;
on a terminal the command asks for new ones. An invalid value is refused before the workspace stops. ` + interruptHelp,
		Example: `  coder update dev
  coder update dev --parameter region=eu`,
		Args: flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onWorkspace(g, cmd, args[0], func(_ context.Context, client *sdk.Client, ws sdk.Workspace) error {
				if !ws.Outdated && !opts.always && opts.params.Empty() {
					fmt.Fprintf(g.Streams().Err, "The workspace %s is up to date.\n", ws.FullName())
					return nil
				}
				return restartWorkspace(g, cmd, client, ws, &opts, ws.TemplateActiveVersionID)
			})
		},
	}
	opts.params.Add(cmd)
	opts.flags(cmd)
	opts.startFlags(cmd)
	return cmd
}

func deleteCmd(g *global.Flags) *cobra.Command {
	var opts buildOptions
	cmd := &cobra.Command{
		Use:     "delete WORKSPACE",
		Aliases: []string{"rm"},
		Short:   "Delete a workspace and everything it holds",
		Long:    "Delete a workspace: destroy its resources with everything they hold. " + interruptHelp,
		Example: `  coder delete dev -y`,
		Args:    flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onWorkspace(g, cmd, args[0], func(ctx context.Context, client *sdk.Client, ws sdk.Workspace) error {
				text := "Delete " + ws.FullName() + " and everything it holds?"
				if opts.orphan {
					text = "Forget " + ws.FullName() + " without destroying its resources?"
				}
				if err := g.Confirm(cmd, opts.yes, text, false); err != nil {
					return err
				}
				build, err := client.CreateBuild(ctx, ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionDelete, Orphan: opts.orphan, Reason: sdk.ReasonCLI})
				if err != nil {
					return err
				}
				return finish(ctx, g, client, ws, build, opts.noWait)
			})
		},
	}
	opts.flags(cmd)
	cmd.Flags().BoolVar(&opts.orphan, "orphan", false, "forget the resources instead of destroying them; for template admins")
	return cmd
}
