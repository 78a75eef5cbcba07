// Package provisioners holds the commands for provisioners, their keys and their jobs.
package provisioners

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

// Command holds what concerns provisioners from the outside. Programs that can be one add "start".
func Command(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "provisioner", Aliases: []string{"provisioners"}, Short: "Manage provisioners and jobs", Example: "  coder provisioner list"}
	jobs := &cobra.Command{Use: "jobs", Aliases: []string{"job"}, Short: "Manage provisioner jobs", Example: "  coder provisioner jobs list"}
	jobs.AddCommand(jobsListCmd(g), jobsCancelCmd(g))
	cmd.AddCommand(provisionersListCmd(g), jobs, provisionerKeysCmd(g))
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

func provisionersListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.ProvisionerDaemon]{Columns: []output.Column[sdk.ProvisionerDaemon]{
		output.Col("name", func(d sdk.ProvisionerDaemon) string { return d.Name }),
		output.Col("status", func(d sdk.ProvisionerDaemon) string { return string(d.Status) }),
		output.Col("key name", func(d sdk.ProvisionerDaemon) string { return d.KeyName }),
		output.Col("tags", func(d sdk.ProvisionerDaemon) string { return tagWords(d.Tags) }),
		output.Col("last seen", func(d sdk.ProvisionerDaemon) string { return output.AgoPtr(d.LastSeenAt) }),
		output.Col("version", func(d sdk.ProvisionerDaemon) string { return d.Version }),
		output.Col("path", func(d sdk.ProvisionerDaemon) string { return d.Path }),
		output.Col("current job", func(d sdk.ProvisionerDaemon) string {
			if d.CurrentJob == nil {
				return ""
			}
			return cmp.Or(d.CurrentJob.TemplateName, "import") + " " + d.CurrentJob.ID.String()
		}),
		output.Col("key id", func(d sdk.ProvisionerDaemon) string { return d.KeyID.String() }),
		output.Col("created at", func(d sdk.ProvisionerDaemon) string { return output.Ago(d.CreatedAt) }),
		output.Col("id", func(d sdk.ProvisionerDaemon) string { return d.ID.String() }),
	}, Initial: []string{"name", "status", "current job", "tags", "key name", "path", "last seen", "version"}}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List provisioners",
		Long: `List provisioners. Template admins see all of them, other users their own. "path" tells whether the server's packets travel directly or
through a relay; "coder ping NAME" measures the path from here.`,
		Example: `  coder provisioner list
  coder provisioner list -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			daemons, err := client.ProvisionerDaemons(cmd.Context(), sdk.DefaultOrganization)
			if err != nil {
				return err
			}
			if len(daemons) == 0 {
				noProvisioners(cmd.Context(), g, client)
			}
			return out.Print(g.Streams().Out, daemons)
		},
	}
	out.Flags(cmd)
	return cmd
}

// noProvisioners explains an empty list: only template admins see shared provisioners.
func noProvisioners(ctx context.Context, g *global.Flags, client *sdk.Client) {
	me, err := client.User(ctx, sdk.Me)
	admin := slices.ContainsFunc(me.Roles, func(r sdk.Role) bool { return r.Name == "owner" || r.Name == "template-admin" })
	if err == nil && admin {
		fmt.Fprintln(g.Streams().Err, "There are no provisioners. Builds wait until one is online. Start one: coder provisioner start")
		return
	}
	fmt.Fprintln(g.Streams().Err, "You have no provisioners of your own. Shared provisioners run your builds; only template admins see them.")
}

func jobsListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.ProvisionerJob]{Columns: []output.Column[sdk.ProvisionerJob]{
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
	}, Initial: []string{"id", "created at", "type", "status", "template", "workspace", "queue", "waiting for"}}
	var limit int
	var statuses []string
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List jobs, newest first",
		Long: `List jobs, newest first. Template admins see all of them, other users their own. "queue" is a waiting job's position among jobs with the
same tags, "waiting for" the reason why it has not started.`,
		Example: `  coder provisioner jobs list --status pending`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
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
			return out.Print(g.Streams().Out, jobs)
		},
	}
	out.Flags(cmd)
	cmd.Flags().IntVarP(&limit, "limit", "l", 50, "maximum number of jobs")
	cmd.Flags().StringSliceVarP(&statuses, "status", "s", nil, "statuses to list, of: pending, running, succeeded, canceling, canceled, failed (default all)")
	return cmd
}

func jobsCancelCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use:     "cancel JOB",
		Short:   "Cancel a job",
		Example: `  coder provisioner jobs cancel 6c2d3f0e-8d3b-4f0c-9a3e-0d6f6f1f2a11`,
		Args:    flags.Argument("job's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			id, err := uuid.Parse(args[0])
			if err != nil {
				return exit.Try(fault.New(fault.Invalid, "%q is not the id of a job", args[0]), "coder provisioner jobs list")
			}
			client, err := g.Client(ctx)
			if err != nil {
				return err
			}
			if err := client.CancelJob(ctx, sdk.DefaultOrganization, id); err != nil {
				return exit.Try(err, "coder provisioner jobs list")
			}
			fmt.Fprintf(g.Streams().Err, "The job %s is being canceled.\n", id)
			return nil
		},
	}
}
