package workspaces

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

const replaceHelp = `If the build would replace or delete what the workspace keeps while it is stopped, such as its disk, the command asks first.
With --yes, or without a terminal, it continues only if the template allows that.`

// post requests a build.
type post func(ctx context.Context, workspace uuid.UUID, req sdk.CreateBuildRequest) (sdk.WorkspaceBuild, error)

// asksReplacing reports whether the user can be asked before a build replaces what the workspace keeps. Otherwise the
// template decides.
func asksReplacing(g *global.Flags, opts *buildOptions) bool {
	return !opts.yes && !opts.noWait && g.Streams().InTTY
}

// finishAsking follows a start or stop. When it is refused because of what it would replace, the user decides, and it
// is requested again.
func finishAsking(g *global.Flags, cmd *cobra.Command, client *sdk.Client, ws sdk.Workspace, build sdk.WorkspaceBuild, opts *buildOptions,
	req *sdk.CreateBuildRequest, again post) error {
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
		now, err := client.Workspace(ctx, ws.ID)
		if err != nil {
			return err
		}
		s := g.Streams()
		fmt.Fprintln(s.Err, "These resources will be replaced or deleted, and their data will be lost:")
		for _, addr := range ended.WouldReplace {
			fmt.Fprintln(s.Err, "  "+addr)
		}
		left := unchanged(now, ended)
		fmt.Fprintf(s.Err, "Nothing has been replaced yet. %s\n", left.says)
		yes, err := s.Confirm(ctx, "Continue?", false)
		if err != nil {
			return err
		}
		if !yes {
			return &exit.Error{Code: exit.Failed, Err: exit.Try(
				fault.New(fault.Conflict, "canceled: nothing was replaced, and %s keeps its version and parameters", ws.FullName()).WithDetail("%s", left.says), "%s", left.try)}
		}
		req.AllowReplacing = ended.WouldReplace
		if build, err = again(ctx, ws.ID, *req); err != nil {
			return err
		}
	}
}

// left says what a refused build has left.
type left struct{ says, try string }

func unchanged(ws sdk.Workspace, refused sdk.WorkspaceBuild) left {
	word := shell.Word(ws.FullName())
	switch {
	case refused.Transition == sdk.TransitionStop:
		return left{"Its resources still exist, but its agents have stopped.", "coder start " + word}
	case len(ws.LatestBuild.Agents()) > 0:
		return left{"It still runs.", "coder ssh " + word}
	}
	return left{
		"It is stopped now. To start it as it was, answer no and run: coder start " + word, "coder start " + word,
	}
}

// refusedReplacing is the error of a build that was refused without a question.
func refusedReplacing(cmd *cobra.Command, ws sdk.Workspace, build sdk.WorkspaceBuild) error {
	f := fault.New(fault.Conflict, "the %s of %s failed", build.Transition, ws.FullName())
	f.Detail = build.Job.Error
	return exit.Try(f, "Run this on a terminal and without --yes: %s %s", cmd.CommandPath(), shell.Word(ws.FullName()))
}
