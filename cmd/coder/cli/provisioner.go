package cli

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

// provisionerCmd holds what concerns provisioners from the outside. Programs that can be one add "start".
func (a *app) provisionerCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "provisioner", Aliases: []string{"provisioners"}, Short: "Look after provisioners and their jobs", Example: "  coder provisioner list"}
	jobs := &cobra.Command{Use: "jobs", Aliases: []string{"job"}, Short: "Look after provisioner jobs", Example: "  coder provisioner jobs list"}
	jobs.AddCommand(a.jobsListCmd(), a.jobsCancelCmd())
	cmd.AddCommand(a.provisionersListCmd(), jobs)
	return cmd
}

func tagWords(tags map[string]string) string {
	var words []string
	for _, key := range sortedKeys(tags) {
		words = append(words, key+"="+tags[key])
	}
	return strings.Join(words, " ")
}

func (a *app) provisionersListCmd() *cobra.Command {
	out := output[sdk.ProvisionerDaemon]{columns: []column[sdk.ProvisionerDaemon]{
		{"name", func(d sdk.ProvisionerDaemon) string { return d.Name }},
		{"status", func(d sdk.ProvisionerDaemon) string { return string(d.Status) }},
		{"key name", func(d sdk.ProvisionerDaemon) string { return d.KeyName }},
		{"tags", func(d sdk.ProvisionerDaemon) string { return tagWords(d.Tags) }},
		{"last seen", func(d sdk.ProvisionerDaemon) string { return agoPtr(d.LastSeenAt) }},
		{"version", func(d sdk.ProvisionerDaemon) string { return d.Version }},
		{"current job", func(d sdk.ProvisionerDaemon) string {
			if d.CurrentJob == nil {
				return ""
			}
			return d.CurrentJob.ID.String()
		}},
		{"id", func(d sdk.ProvisionerDaemon) string { return d.ID.String() }},
	}, initial: []string{"name", "status", "key name", "tags", "last seen", "version"}}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List provisioners",
		Example: `  coder provisioner list`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			daemons, err := client.ProvisionerDaemons(cmd.Context(), sdk.DefaultOrganization)
			if err != nil {
				return err
			}
			return out.print(a.streams().Out, daemons)
		},
	}
	out.flags(cmd)
	return cmd
}

func (a *app) jobsListCmd() *cobra.Command {
	out := output[sdk.ProvisionerJob]{columns: []column[sdk.ProvisionerJob]{
		{"id", func(j sdk.ProvisionerJob) string { return j.ID.String() }},
		{"created at", func(j sdk.ProvisionerJob) string { return ago(j.CreatedAt) }},
		{"type", func(j sdk.ProvisionerJob) string { return string(j.Type) }},
		{"status", func(j sdk.ProvisionerJob) string { return string(j.Status) }},
		{"template", func(j sdk.ProvisionerJob) string { return j.Metadata.TemplateName }},
		{"workspace", func(j sdk.ProvisionerJob) string { return j.Metadata.WorkspaceName }},
		{"worker", func(j sdk.ProvisionerJob) string { return j.WorkerName }},
		{"tags", func(j sdk.ProvisionerJob) string { return tagWords(j.Tags) }},
		{"queue", func(j sdk.ProvisionerJob) string {
			if j.QueuePosition == 0 {
				return ""
			}
			return fmt.Sprintf("%d/%d", j.QueuePosition, j.QueueSize)
		}},
		{"waiting for", func(j sdk.ProvisionerJob) string { return j.WaitingReason }},
		{"error", func(j sdk.ProvisionerJob) string { return j.Error }},
	}, initial: []string{"id", "created at", "type", "status", "template", "workspace", "queue"}}
	var limit int
	var statuses []string
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List jobs, newest first",
		Example: `  coder provisioner jobs list --status pending`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			q := sdk.JobsQuery{Limit: limit}
			for _, s := range statuses {
				q.Statuses = append(q.Statuses, sdk.JobStatus(s))
			}
			jobs, err := client.ProvisionerJobs(cmd.Context(), sdk.DefaultOrganization, q)
			if err != nil {
				return err
			}
			return out.print(a.streams().Out, jobs)
		},
	}
	out.flags(cmd)
	cmd.Flags().IntVarP(&limit, "limit", "l", 50, "how many")
	cmd.Flags().StringSliceVarP(&statuses, "status", "s", nil, "only these: pending, running, succeeded, canceling, canceled, failed")
	return cmd
}

func (a *app) jobsCancelCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "cancel JOB",
		Short:   "Cancel a job",
		Example: `  coder provisioner jobs cancel 6c2d3f0e-8d3b-4f0c-9a3e-0d6f6f1f2a11`,
		Args:    argument("job's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			id, err := uuid.Parse(args[0])
			if err != nil {
				return Try(fault.New(fault.Invalid, "%q is not the id of a job", args[0]), "coder provisioner jobs list")
			}
			client, err := a.client(ctx)
			if err != nil {
				return err
			}
			job, err := client.ProvisionerJob(ctx, sdk.DefaultOrganization, id)
			if err != nil {
				return Try(err, "coder provisioner jobs list")
			}
			switch {
			case job.Input.WorkspaceBuildID != nil:
				err = client.CancelBuild(ctx, *job.Input.WorkspaceBuildID)
			case job.Input.TemplateVersionID != nil && job.Type == sdk.JobTemplateDryRun:
				err = client.CancelDryRun(ctx, *job.Input.TemplateVersionID, job.ID)
			case job.Input.TemplateVersionID != nil:
				err = client.CancelTemplateVersion(ctx, *job.Input.TemplateVersionID)
			default:
				err = fault.New(fault.Internal, "the server does not say what the job belongs to")
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(a.streams().Err, "The job %s is being canceled.\n", job.ID)
			return nil
		},
	}
}
