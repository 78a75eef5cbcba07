package workspaces

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// restorable reports whether a build left a state that later builds can start from.
func restorable(k sdk.StoredState) bool { return k.Problem == "" && k.JobStatus == sdk.JobSucceeded }

func stateListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.StoredState]{Columns: []output.Column[sdk.StoredState]{
		output.Col("build", func(k sdk.StoredState) string { return strconv.Itoa(int(k.BuildNumber)) }),
		output.Col("transition", func(k sdk.StoredState) string { return string(k.Transition) }),
		output.Col("result", func(k sdk.StoredState) string { return string(k.JobStatus) }),
		output.Col("created", func(k sdk.StoredState) string { return output.Ago(k.CreatedAt) }),
		output.Col("by", func(k sdk.StoredState) string { return k.InitiatorName }),
		output.Col("serial", func(k sdk.StoredState) string { return strconv.FormatUint(k.Serial, 10) }),
		output.Col("resources", func(k sdk.StoredState) string { return strconv.Itoa(k.Resources) }),
		output.Col("lineage", func(k sdk.StoredState) string { return k.Lineage }),
		output.Col("problem", func(k sdk.StoredState) string { return k.Problem }),
	}}
	cmd := &cobra.Command{
		Use:     "list WORKSPACE",
		Aliases: []string{"ls"},
		Short:   "List the states that the builds of a workspace left",
		Example: `  coder state list dev`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			_, stored, err := storedStates(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, stored)
		},
	}
	out.Flags(cmd)
	return cmd
}

// storedStates returns a workspace and the states that its newest builds left, the newest first.
func storedStates(ctx context.Context, client *sdk.Client, name string) (sdk.Workspace, []sdk.StoredState, error) {
	ws, _, err := target.Find(ctx, client, name)
	if err != nil {
		return ws, nil, err
	}
	stored, err := client.States(ctx, ws.ID)
	return ws, stored, err
}

func stateRestoreCmd(g *global.Flags) *cobra.Command {
	var opts restoreOptions
	cmd := &cobra.Command{
		Use:   "restore WORKSPACE",
		Short: "Build the workspace from the state that an earlier build left",
		Long: `Build the workspace from the state that an earlier build left: by default, the newest successful one before the latest.
Resources that were created since are not in that state: no build deletes them.`,
		Example: `  coder state restore dev
  coder state restore dev --build 3`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runStateRestore(g, cmd, args[0], &opts) },
	}
	f := cmd.Flags()
	f.IntVarP(&opts.number, "build", "b", 0,
		"number of the build (default the newest successful one before the latest)")
	f.BoolVarP(&opts.noBuild, "no-build", "n", false, "store the state without building the workspace")
	flags.Yes(cmd, &opts.yes)
	return cmd
}

type restoreOptions struct {
	number       int // of the build; 0 for the newest that can be restored before the latest
	noBuild, yes bool
}

func runStateRestore(g *global.Flags, cmd *cobra.Command, name string, opts *restoreOptions) error {
	client, err := g.Client(cmd.Context())
	if err != nil {
		return err
	}
	ws, stored, err := storedStates(cmd.Context(), client, name)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(stored, func(k sdk.StoredState) bool {
		if opts.number != 0 {
			return int(k.BuildNumber) == opts.number
		}
		return k.BuildID != ws.LatestBuild.ID && restorable(k)
	})
	if i < 0 {
		return exit.Try(fault.New(fault.NotFound, "%s has no such state", ws.FullName()), "coder state list %s",
			shell.Word(ws.FullName()))
	}
	chosen := stored[i]
	if chosen.Problem != "" {
		return exit.Try(fault.New(fault.Invalid, "the state of build %d cannot be used: %s", chosen.BuildNumber,
			chosen.Problem), "coder state list %s", shell.Word(ws.FullName()))
	}
	what := fmt.Sprintf("the state of build %d (%d resources)", chosen.BuildNumber, chosen.Resources)
	if opts.noBuild {
		err = storeAgain(cmd.Context(), client, chosen.BuildID, ws.LatestBuild.ID)
	} else {
		err = restoreState(g, cmd, client, ws, chosen, opts.yes, what)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(g.Streams().Err, "Restored %s.\n", what)
	return nil
}

// storeAgain stores the state that a build left as that of another build of its workspace.
func storeAgain(ctx context.Context, client *sdk.Client, from, to uuid.UUID) error {
	var text bytes.Buffer
	if err := client.BuildState(ctx, from, &text); err != nil {
		return err
	}
	return client.UpdateBuildState(ctx, to, sdk.UpdateStateRequest{State: text.Bytes(), Force: true}) // it may be older
}

func restoreState(g *global.Flags, cmd *cobra.Command, client *sdk.Client, ws sdk.Workspace, chosen sdk.StoredState, yes bool, what string) error {
	if err := g.Confirm(cmd, yes, fmt.Sprintf("Build %s from %s?", ws.FullName(), what), true); err != nil {
		return err
	}
	next, err := client.RestoreState(cmd.Context(), chosen.BuildID, sdk.RestoreStateRequest{Reason: sdk.ReasonCLI})
	if err != nil {
		return err
	}
	return g.Follower(client).Build(cmd.Context(), ws, next)
}
