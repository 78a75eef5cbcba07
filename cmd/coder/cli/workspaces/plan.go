package workspaces

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/follow"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// planUpdate plans the update of a workspace to its template's active version and prints what it would change. An
// interrupt cancels the plan.
func planUpdate(
	g *global.Flags, cmd *cobra.Command, client *sdk.Client, ws sdk.Workspace, opts *buildOptions, format string,
) error {
	ctx := cmd.Context()
	var build sdk.CreateBuildRequest
	if err := startParameters(g, cmd, client, ws, opts, ws.TemplateActiveVersionID, &build); err != nil {
		return err
	}
	plan, err := client.CreatePlan(ctx, ws.ID, sdk.CreatePlanRequest{
		TemplateVersionID: ws.TemplateActiveVersionID, RichParameterValues: build.RichParameterValues,
	})
	if err != nil {
		return err
	}
	id := plan.ID
	what, atOnce := "the plan of "+ws.FullName(), client.AtOnce() // the follower waits
	if _, err := g.Follower(client).Job(ctx, follow.Job{
		What: what,
		Logs: func(ctx context.Context, after int64) iter.Seq2[sdk.JobLog, error] {
			return atOnce.FollowPlanLogs(ctx, ws.ID, id, after)
		},
		Get: func(ctx context.Context) (sdk.ProvisionerJob, error) {
			plan, err := atOnce.Plan(ctx, ws.ID, id)
			return plan.Job, err
		},
		Cancel: func(ctx context.Context) error { return client.CancelPlan(ctx, ws.ID, id) },
	}); err != nil {
		return err
	}
	if plan, err = client.Plan(ctx, ws.ID, id); err != nil {
		return err
	}
	if err := follow.JobError(plan.Job, what, "Correct the parameters, or ask the template's author."); err != nil {
		return err
	}
	if format == "json" {
		return output.JSON(g.Streams().Out, plan)
	}
	return printChanges(g.Streams().Out, plan.Changes)
}

// printChanges lists what an update would change, and says what would be lost.
func printChanges(out io.Writer, changes []sdk.PlannedChange) error {
	table := tty.Table{Header: []string{"action", "resource", "attributes"}}
	var lost []string
	same := 0
	for _, c := range changes {
		switch c.Action {
		case sdk.PlanNoOp:
			same++
			continue
		case sdk.PlanRead:
			continue
		}
		table.Add(string(c.Action), c.Address, strings.Join(c.Attributes, ", "))
		if c.LosesData {
			lost = append(lost, c.Address)
		}
	}
	if len(table.Rows) == 0 {
		fmt.Fprintln(out, "The update changes no resource.")
	} else if err := table.Write(out); err != nil {
		return err
	}
	if same > 0 {
		fmt.Fprintf(out, "Unchanged: %d\n", same)
	}
	if len(lost) > 0 {
		fmt.Fprintf(out, "Destroyed, with its data: %s\n", tty.Clean(strings.Join(lost, ", ")))
	}
	return nil
}
