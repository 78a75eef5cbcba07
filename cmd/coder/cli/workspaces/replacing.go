package workspaces

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

const replaceHelp = `If the build would replace or delete what the workspace keeps while it is stopped, such as its disk, the command asks first.
With --yes, or without a terminal, it continues only if the template allows that.`

// asksReplacing reports whether the user can be asked before a start replaces what the workspace keeps. Otherwise the template decides.
func asksReplacing(g *global.Flags, opts *buildOptions) bool {
	return !opts.yes && !opts.noWait && g.Streams().InTTY
}

// finishStart follows a start. When it is refused because of what it would replace, the user decides, and it is requested again.
func finishStart(g *global.Flags, cmd *cobra.Command, client *sdk.Client, ws sdk.Workspace, build sdk.WorkspaceBuild, opts *buildOptions, req sdk.CreateBuildRequest) error {
	ctx := cmd.Context()
	for {
		failed := finish(ctx, g, client, ws, build, opts.noWait)
		if failed == nil || ctx.Err() != nil {
			return failed
		}
		ended, err := client.Build(ctx, build.ID)
		if err != nil || ended.Job.ErrorCode != sdk.JobErrorReplaces {
			return failed
		}
		if !asksReplacing(g, opts) {
			return refusedReplacing(cmd, ws, ended)
		}
		s := g.Streams()
		fmt.Fprintln(s.Err, "These resources will be replaced or deleted, and their data will be lost:")
		for _, addr := range ended.WouldReplace {
			fmt.Fprintln(s.Err, "  "+addr)
		}
		yes, err := s.Confirm(ctx, "Continue?", false)
		if err != nil {
			return err
		}
		if !yes {
			return &exit.Error{Code: exit.Failed, Err: exit.Try(fault.New(fault.Conflict, "canceled: nothing was replaced, and %s keeps its version and parameters", ws.FullName()),
				"coder start %s", ws.FullName())}
		}
		req.AllowReplacing = ended.WouldReplace
		if build, err = client.CreateBuild(ctx, ws.ID, req); err != nil {
			return err
		}
	}
}

// refusedReplacing is the error of a start that was refused without a question.
func refusedReplacing(cmd *cobra.Command, ws sdk.Workspace, build sdk.WorkspaceBuild) error {
	f := fault.New(fault.Conflict, "the start of %s failed", ws.FullName())
	f.Detail = build.Job.Error
	return exit.Try(f, "Run %q on a terminal and without --yes.", cmd.CommandPath()+" "+ws.FullName())
}
