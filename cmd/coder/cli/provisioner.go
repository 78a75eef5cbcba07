package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

// provisionerCmd holds what concerns provisioners from the outside. Programs that can be one add "start".
func (a *app) provisionerCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "provisioner", Aliases: []string{"provisioners"}, Short: "Manage provisioners and jobs", Example: "  coder provisioner list"}
	jobs := &cobra.Command{Use: "jobs", Aliases: []string{"job"}, Short: "Manage provisioner jobs", Example: "  coder provisioner jobs list"}
	jobs.AddCommand(a.jobsListCmd(), a.jobsCancelCmd())
	cmd.AddCommand(a.provisionersListCmd(), jobs, a.provisionerKeysCmd())
	return cmd
}

// tagWords leaves out what every provisioner and job for everybody has.
func tagWords(tags map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if key == "owner" && tags[key] == "" || key == "scope" && tags[key] == "organization" {
			continue
		}
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
		{"path", func(d sdk.ProvisionerDaemon) string { return d.Path }},
		{"current job", func(d sdk.ProvisionerDaemon) string {
			if d.CurrentJob == nil {
				return ""
			}
			return cmp.Or(d.CurrentJob.TemplateName, "import") + " " + d.CurrentJob.ID.String()
		}},
		{"key id", func(d sdk.ProvisionerDaemon) string { return d.KeyID.String() }},
		{"created at", func(d sdk.ProvisionerDaemon) string { return ago(d.CreatedAt) }},
		{"id", func(d sdk.ProvisionerDaemon) string { return d.ID.String() }},
	}, initial: []string{"name", "status", "current job", "tags", "key name", "path", "last seen", "version"}}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List provisioners",
		Long: `List provisioners: template admins see all, others their own. The path is how the server's packets travel to it: direct, or relayed.
"coder ping NAME" measures it from here.`,
		Example: `  coder provisioner list
  coder provisioner list -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			daemons, err := client.ProvisionerDaemons(cmd.Context(), sdk.DefaultOrganization)
			if err != nil {
				return err
			}
			if len(daemons) == 0 {
				a.noProvisioners(cmd.Context(), client)
			}
			return out.print(a.streams().Out, daemons)
		},
	}
	out.flags(cmd)
	return cmd
}

// noProvisioners explains an empty list: only template admins see shared provisioners.
func (a *app) noProvisioners(ctx context.Context, client *sdk.Client) {
	me, err := client.User(ctx, sdk.Me)
	admin := slices.ContainsFunc(me.Roles, func(r sdk.Role) bool { return r.Name == "owner" || r.Name == "template-admin" })
	if err == nil && admin {
		fmt.Fprintln(a.streams().Err, "There are no provisioners. Builds wait until one is online: coder provisioner start")
		return
	}
	fmt.Fprintln(a.streams().Err, "You have no provisioners of your own. Shared provisioners run your builds; only template admins see them.")
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
	}, initial: []string{"id", "created at", "type", "status", "template", "workspace", "queue", "waiting for"}}
	var limit int
	var statuses []string
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List jobs, newest first",
		Long: `List jobs, newest first: template admins see all, others their own. "queue" is a waiting job's place among those with the same tags, and
"waiting for" says why it does not run.`,
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
			if err := client.CancelJob(ctx, sdk.DefaultOrganization, id); err != nil {
				return Try(err, "coder provisioner jobs list")
			}
			fmt.Fprintf(a.streams().Err, "The job %s is being canceled.\n", id)
			return nil
		},
	}
}
