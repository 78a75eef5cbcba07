package workspaces

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// maxState bounds what state push reads, in bytes. The server accepts no more.
const maxState = 768<<20 - 4096

func stateCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "state", Short: "Read, replace and restore the Terraform state of a workspace",
		Example: "  coder state pull dev state.json",
	}
	cmd.AddCommand(stateListCmd(g), statePullCmd(g), statePushCmd(g), stateRestoreCmd(g))
	return cmd
}

// findBuild returns a build of the named workspace by its number. 0 is the latest, negative numbers count back from it.
func findBuild(
	cmd *cobra.Command, client *sdk.Client, text string, number int,
) (sdk.Workspace, sdk.WorkspaceBuild, error) {
	ws, _, err := target.Find(cmd.Context(), client, text)
	if err != nil {
		return ws, sdk.WorkspaceBuild{}, err
	}
	if number == 0 {
		return ws, ws.LatestBuild, nil
	}
	if number < 0 {
		number = int(ws.LatestBuild.BuildNumber) + number
	}
	build, err := client.BuildByNumber(cmd.Context(), ws.OwnerName, ws.Name, number)
	return ws, build, err
}

func statePullCmd(g *global.Flags) *cobra.Command {
	var number int
	cmd := &cobra.Command{
		Use:     "pull WORKSPACE [file]",
		Short:   "Write the Terraform state to a file or standard output",
		Example: `  coder state pull dev state.json`,
		Args:    cobra.RangeArgs(1, 2),
		RunE:    func(cmd *cobra.Command, args []string) error { return runStatePull(g, cmd, args, number) },
	}
	cmd.Flags().IntVarP(&number, "build", "b", 0,
		"number of the build; negative numbers count back from the latest (default the latest)")
	return cmd
}

func runStatePull(g *global.Flags, cmd *cobra.Command, args []string, number int) error {
	client, err := g.Client(cmd.Context())
	if err != nil {
		return err
	}
	_, build, err := findBuild(cmd, client, args[0], number)
	if err != nil {
		return err
	}
	if len(args) == 1 || args[1] == "-" {
		return client.BuildState(cmd.Context(), build.ID, tty.Raw(g.Streams().Out))
	}
	f, err := os.OpenFile(args[1], os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600) // a state may hold secrets
	if err != nil {
		return fault.New(fault.Invalid, "cannot write the file: %w", err)
	}
	if err := client.BuildState(cmd.Context(), build.ID, f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

type pushOptions struct {
	number              int // of the build, as for findBuild
	noBuild, yes, force bool
}

func statePushCmd(g *global.Flags) *cobra.Command {
	var opts pushOptions
	cmd := &cobra.Command{
		Use:     "push WORKSPACE {file|-}",
		Short:   "Replace the Terraform state and build the workspace from it",
		Example: `  coder state push dev state.json`,
		Args:    cobra.ExactArgs(2),
		RunE:    func(cmd *cobra.Command, args []string) error { return runStatePush(g, cmd, args, &opts) },
	}
	f := cmd.Flags()
	f.IntVarP(&opts.number, "build", "b", 0,
		"number of the build; negative numbers count back from the latest (default the latest)")
	f.BoolVarP(&opts.noBuild, "no-build", "n", false, "store the state without building the workspace")
	f.BoolVar(&opts.force, "force", false, "accept an older state, and one of another workspace: builds then manage its resources, and forget those of this workspace")
	flags.Yes(cmd, &opts.yes)
	return cmd
}

func runStatePush(g *global.Flags, cmd *cobra.Command, args []string, opts *pushOptions) error {
	client, err := g.Client(cmd.Context())
	if err != nil {
		return err
	}
	in := g.Streams().In
	if args[1] != "-" {
		f, err := os.Open(args[1])
		if err != nil {
			return fault.New(fault.Invalid, "cannot read the file: %w", err)
		}
		defer f.Close()
		in = f
	}
	state, err := io.ReadAll(io.LimitReader(in, maxState+1))
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	if len(state) > maxState {
		return fault.New(fault.TooLarge, "the state is larger than %d bytes, which is more than the server takes",
			maxState)
	}
	ws, build, err := findBuild(cmd, client, args[0], opts.number)
	if err != nil {
		return err
	}
	return pushState(g, cmd, client, ws, build, state, opts)
}

// pushState gives a workspace the state, and builds it as build was unless opts forbid that.
func pushState(g *global.Flags, cmd *cobra.Command, client *sdk.Client, ws sdk.Workspace, build sdk.WorkspaceBuild, state []byte, opts *pushOptions) error {
	if opts.noBuild {
		return client.UpdateBuildState(cmd.Context(), build.ID, sdk.UpdateStateRequest{State: state, Force: opts.force})
	}
	if err := g.Confirm(cmd, opts.yes, fmt.Sprintf("Build %s from the given state?", ws.FullName()), true); err != nil {
		return err
	}
	next, err := client.CreateBuild(cmd.Context(), ws.ID, sdk.CreateBuildRequest{
		TemplateVersionID: build.TemplateVersionID, Transition: build.Transition, ProvisionerState: state,
		ForceState: opts.force, Reason: sdk.ReasonCLI,
	})
	if err != nil {
		return err
	}
	return g.Follower(client).Build(cmd.Context(), ws, next)
}
