package workspaces

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/follow"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// preview plans the workspace that the request creates, and lists its resources.
func preview(
	ctx context.Context, g *global.Flags, client *sdk.Client, version uuid.UUID, req sdk.CreateWorkspaceRequest,
) error {
	job, err := client.CreateDryRun(ctx, version, sdk.CreateDryRunRequest{
		WorkspaceName: req.Name, RichParameterValues: req.RichParameterValues,
	})
	if err != nil {
		return err
	}
	id := job.ID
	what, atOnce := "the plan of "+req.Name, client.AtOnce() // the follower waits
	job, err = g.Follower(client).Job(ctx, follow.Job{
		What: what,
		Logs: func(ctx context.Context, after int64) iter.Seq2[sdk.JobLog, error] {
			return atOnce.FollowDryRunLogs(ctx, version, id, after)
		},
		Get:    func(ctx context.Context) (sdk.ProvisionerJob, error) { return atOnce.DryRun(ctx, version, id) },
		Cancel: func(ctx context.Context) error { return client.CancelDryRun(ctx, version, id) },
	})
	if err != nil {
		return err
	}
	if err := follow.JobError(job, what, "Correct the parameters, or ask the template's author."); err != nil {
		return err
	}
	resources, err := client.DryRunResources(ctx, version, id)
	if err != nil {
		return err
	}
	return printPlan(g.Streams(), resources)
}

// printPlan lists planned resources with their agents and apps.
func printPlan(s *tty.Streams, resources []sdk.WorkspaceResource) error {
	table := tty.Table{Header: []string{"resource", "agent", "platform", "apps"}}
	for _, r := range resources {
		if r.Hide && len(r.Agents) == 0 {
			continue
		}
		label := r.Type + "." + r.Name
		if len(r.Agents) == 0 {
			table.Add(label)
		}
		for _, agent := range r.Agents {
			var apps []string
			for _, app := range agent.Apps {
				apps = append(apps, app.Slug)
			}
			table.Add(label, agent.Name, agent.OperatingSystem+"/"+agent.Architecture,
				strings.Join(slices.Sorted(slices.Values(apps)), ", "))
		}
	}
	if len(table.Rows) == 0 {
		fmt.Fprintln(s.Err, "The workspace has no resources.")
		return nil
	}
	return table.Write(s.Err)
}
