package provisioners

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

type jobsOptions struct {
	out       output.List[sdk.ProvisionerJob]
	limit     int
	statuses  []string
	initiator string
	found     sdk.Organization
	org       organization.Flag
}

// jobJSON is a job with the name of its organization.
type jobJSON struct {
	sdk.ProvisionerJob
	Organization string `json:"organization_name"`
}

func agoOrNone(t *time.Time) string {
	if t == nil {
		return ""
	}
	return output.Ago(*t)
}

func idOrNone(id *uuid.UUID) string {
	if id == nil {
		return ""
	}
	return id.String()
}

func jobsListCmd(g *global.Flags) *cobra.Command {
	var opts jobsOptions
	opts.out = output.List[sdk.ProvisionerJob]{Columns: []output.Column[sdk.ProvisionerJob]{
		output.Col("id", func(j sdk.ProvisionerJob) string { return j.ID.String() }),
		output.Col("created at", func(j sdk.ProvisionerJob) string { return output.Ago(j.CreatedAt) }),
		output.Col("type", func(j sdk.ProvisionerJob) string { return string(j.Type) }),
		output.Col("status", func(j sdk.ProvisionerJob) string { return string(j.Status) }),
		output.Col("template", func(j sdk.ProvisionerJob) string { return j.Metadata.TemplateName }),
		output.Col("workspace", func(j sdk.ProvisionerJob) string { return j.Metadata.WorkspaceName }),
		output.Col("worker", func(j sdk.ProvisionerJob) string { return j.WorkerName }),
		output.Col("tags", func(j sdk.ProvisionerJob) string { return tagWords(j.Tags) }),
		output.Col("queue", func(j sdk.ProvisionerJob) string {
			if j.QueuePosition == 0 {
				return ""
			}
			return fmt.Sprintf("%d/%d", j.QueuePosition, j.QueueSize)
		}),
		output.Col("waiting for", func(j sdk.ProvisionerJob) string { return j.WaitingReason }),
		output.Col("error", func(j sdk.ProvisionerJob) string { return j.Error }),
		output.Col("started at", func(j sdk.ProvisionerJob) string { return agoOrNone(j.StartedAt) }),
		output.Col("completed at", func(j sdk.ProvisionerJob) string { return agoOrNone(j.CompletedAt) }),
		output.Col("canceled at", func(j sdk.ProvisionerJob) string { return agoOrNone(j.CanceledAt) }),
		output.Col("error code", func(j sdk.ProvisionerJob) string { return string(j.ErrorCode) }),
		output.Col("worker id", func(j sdk.ProvisionerJob) string { return idOrNone(j.WorkerID) }),
		output.Col("worker name", func(j sdk.ProvisionerJob) string { return j.WorkerName }),
		output.Col("file id", func(j sdk.ProvisionerJob) string { return j.FileID.String() }),
		output.Col("queue position", func(j sdk.ProvisionerJob) string { return strconv.Itoa(j.QueuePosition) }),
		output.Col("queue size", func(j sdk.ProvisionerJob) string { return strconv.Itoa(j.QueueSize) }),
		output.Col("organization id", func(j sdk.ProvisionerJob) string { return j.OrganizationID.String() }),
		output.Col("organization", func(sdk.ProvisionerJob) string { return opts.found.Name }),
		output.Col("initiator id", func(j sdk.ProvisionerJob) string { return j.InitiatorID.String() }),
		output.Col("template version id",
			func(j sdk.ProvisionerJob) string { return idOrNone(j.Input.TemplateVersionID) }),
		output.Col("workspace build id",
			func(j sdk.ProvisionerJob) string { return idOrNone(j.Input.WorkspaceBuildID) }),
		output.Col("available workers", func(j sdk.ProvisionerJob) string {
			ids := make([]string, len(j.AvailableWorkers))
			for i, id := range j.AvailableWorkers {
				ids[i] = id.String()
			}
			return strings.Join(ids, ",")
		}),
		output.Col("template version name",
			func(j sdk.ProvisionerJob) string { return j.Metadata.TemplateVersionName }),
		output.Col("template id", func(j sdk.ProvisionerJob) string { return j.Metadata.TemplateID.String() }),
		output.Col("template name", func(j sdk.ProvisionerJob) string { return j.Metadata.TemplateName }),
		output.Col("template display name",
			func(j sdk.ProvisionerJob) string { return j.Metadata.TemplateDisplayName }),
		output.Col("template icon", func(j sdk.ProvisionerJob) string { return j.Metadata.TemplateIcon }),
		output.Col("workspace id", func(j sdk.ProvisionerJob) string { return idOrNone(j.Metadata.WorkspaceID) }),
		output.Col("workspace name", func(j sdk.ProvisionerJob) string { return j.Metadata.WorkspaceName }),
		output.Col("logs overflowed",
			func(j sdk.ProvisionerJob) string { return strconv.FormatBool(j.LogsOverflowed) }),
	}, Initial: []string{"id", "created at", "type", "status", "template", "workspace", "queue", "waiting for"}, JSON: func(j sdk.ProvisionerJob) any {
		return jobJSON{j, opts.found.Name}
	}}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List jobs, newest first",
		Long: `List jobs, newest first. Template admins see all of them, other users their own. "queue" is a waiting job's position among jobs with the
same tags, "waiting for" the reason why it has not started.`,
		Example: `  coder provisioner jobs list --status pending`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runJobsList(cmd.Context(), g, &opts) },
	}
	opts.out.Flags(cmd)
	opts.org.Add(cmd)
	cmd.Flags().IntVarP(&opts.limit, "limit", "l", 50, "maximum number of jobs, 0 for all")
	cmd.Flags().StringVarP(&opts.initiator, "initiator", "i", "",
		"name or id of the user who requested the jobs, or me (default any)")
	cmd.Flags().StringSliceVarP(&opts.statuses, "status", "s", nil,
		"statuses to list, of: pending, running, succeeded, canceling, canceled, failed (default all)")
	return cmd
}

func runJobsList(ctx context.Context, g *global.Flags, opts *jobsOptions) error {
	client, err := g.Client(ctx)
	if err != nil {
		return err
	}
	if opts.limit < 0 {
		return fault.New(fault.Invalid, "--limit cannot be %d: use a number of jobs, or 0 for all", opts.limit)
	}
	q := sdk.JobsQuery{Initiator: opts.initiator}
	for _, s := range opts.statuses {
		q.Statuses = append(q.Statuses, sdk.JobStatus(s))
	}
	org, err := opts.org.Find(ctx, client)
	if err != nil {
		return err
	}
	opts.found = org
	jobs, more, err := newestJobs(ctx, client, org.ID.String(), q, opts.limit)
	if err != nil {
		return err
	}
	if err := opts.out.Print(g.Streams().Out, jobs); err != nil || !more {
		return err
	}
	fmt.Fprintln(g.Streams().Err, "There are older jobs. List all with --limit 0.")
	return nil
}

// newestJobs reads pages of jobs until it has as many as wanted, 0 for all, and reports whether there are more.
func newestJobs(
	ctx context.Context, client *sdk.Client, org string, q sdk.JobsQuery, wanted int,
) (jobs []sdk.ProvisionerJob, more bool, err error) {
	const most = 1000 // in one answer
	for {
		q.Limit, q.Offset = most, len(jobs)
		if wanted > 0 {
			q.Limit = min(most, wanted+1-len(jobs))
		}
		page, err := client.ProvisionerJobs(ctx, org, q)
		if err != nil {
			return nil, false, err
		}
		if len(jobs) > 0 && len(page) > 0 && page[0].ID == jobs[0].ID { // of a server that knows no pages
			return jobs, true, nil
		}
		jobs = append(jobs, page...)
		if wanted > 0 && len(jobs) > wanted {
			return jobs[:wanted], true, nil
		}
		if len(page) < q.Limit {
			return jobs, false, nil
		}
	}
}

func jobsCancelCmd(g *global.Flags) *cobra.Command {
	var flag organization.Flag
	cmd := &cobra.Command{
		Use:     "cancel JOB",
		Short:   "Cancel a job",
		Example: `  coder provisioner jobs cancel 6c2d3f0e-8d3b-4f0c-9a3e-0d6f6f1f2a11`,
		Args:    flags.Argument("job's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			id, err := uuid.Parse(args[0])
			if err != nil {
				return exit.Try(fault.New(fault.Invalid, "%q is not the id of a job", args[0]),
					"coder provisioner jobs list")
			}
			client, err := g.Client(ctx)
			if err != nil {
				return err
			}
			org, err := flag.Find(ctx, client)
			if err != nil {
				return err
			}
			if err := client.CancelJob(ctx, org.ID.String(), id); err != nil {
				return exit.Try(err, "coder provisioner jobs list")
			}
			fmt.Fprintf(g.Streams().Err, "The job %s is being canceled.\n", id)
			return nil
		},
	}
	flag.Add(cmd)
	return cmd
}
