// Package provisioners holds the commands for provisioners, their keys and their jobs.
package provisioners

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Command returns "provisioner". Programs that can run a provisioner add "start" to it.
func Command(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "provisioner", Aliases: []string{"provisioners"}, Short: "Manage provisioners and jobs", Example: "  coder provisioner list"}
	jobs := &cobra.Command{Use: "jobs", Aliases: []string{"job"}, Short: "Manage provisioner jobs", Example: "  coder provisioner jobs list"}
	jobs.AddCommand(jobsListCmd(g), jobsCancelCmd(g))
	cmd.AddCommand(provisionersListCmd(g), jobs, provisionerKeysCmd(g))
	return cmd
}

// tagWords formats tags without those that every shared provisioner and job has.
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

// daemonJSON is a provisioner with the name of the organization that was asked for.
type daemonJSON struct {
	sdk.ProvisionerDaemon
	Organization string `json:"organization_name"`
}

// jobColumns returns the columns of a provisioner's current or previous job.
func jobColumns(
	which string, job func(sdk.ProvisionerDaemon) *sdk.ProvisionerDaemonJob,
) []output.Column[sdk.ProvisionerDaemon] {
	col := func(name string, text func(sdk.ProvisionerDaemonJob) string) output.Column[sdk.ProvisionerDaemon] {
		return output.Col(which+name, func(d sdk.ProvisionerDaemon) string {
			if j := job(d); j != nil {
				return text(*j)
			}
			return ""
		})
	}
	return []output.Column[sdk.ProvisionerDaemon]{
		col("id", func(j sdk.ProvisionerDaemonJob) string { return j.ID.String() }),
		col("status", func(j sdk.ProvisionerDaemonJob) string { return string(j.Status) }),
		col("template name", func(j sdk.ProvisionerDaemonJob) string { return j.TemplateName }),
		col("template icon", func(j sdk.ProvisionerDaemonJob) string { return j.TemplateIcon }),
		col("template display name", func(j sdk.ProvisionerDaemonJob) string { return j.TemplateDisplayName }),
	}
}

func provisionersListCmd(g *global.Flags) *cobra.Command {
	var flag organization.Flag
	var org sdk.Organization
	var query sdk.DaemonsQuery
	var offline bool
	var age string
	out := output.List[sdk.ProvisionerDaemon]{Columns: []output.Column[sdk.ProvisionerDaemon]{
		output.Col("name", func(d sdk.ProvisionerDaemon) string { return d.Name }),
		output.Col("status", func(d sdk.ProvisionerDaemon) string { return string(d.Status) }),
		output.Col("key name", func(d sdk.ProvisionerDaemon) string { return d.KeyName }),
		output.Col("tags", func(d sdk.ProvisionerDaemon) string { return tagWords(d.Tags) }),
		output.Col("last seen", func(d sdk.ProvisionerDaemon) string { return output.AgoPtr(d.LastSeenAt) }),
		output.Col("version", func(d sdk.ProvisionerDaemon) string { return d.Version }),
		output.Col("path", func(d sdk.ProvisionerDaemon) string { return d.Path }),
		output.Col("server", func(d sdk.ProvisionerDaemon) string {
			if d.ServerID == nil {
				return ""
			}
			return target.ShortID(*d.ServerID)
		}),
		output.Col("current job", func(d sdk.ProvisionerDaemon) string {
			if d.CurrentJob == nil {
				return ""
			}
			return cmp.Or(d.CurrentJob.TemplateName, "import") + " " + d.CurrentJob.ID.String()
		}),
		output.Col("organization", func(d sdk.ProvisionerDaemon) string {
			if d.KeyName == sdk.KeyBuiltIn {
				return "all"
			}
			return org.Name
		}),
		output.Col("key id", func(d sdk.ProvisionerDaemon) string { return d.KeyID.String() }),
		output.Col("created at", func(d sdk.ProvisionerDaemon) string { return output.Ago(d.CreatedAt) }),
		output.Col("id", func(d sdk.ProvisionerDaemon) string { return d.ID.String() }),
		output.Col("organization id", func(d sdk.ProvisionerDaemon) string { return d.OrganizationID.String() }),
		output.Col("last seen at", func(d sdk.ProvisionerDaemon) string { return output.AgoPtr(d.LastSeenAt) }),
		output.Col("api version", func(d sdk.ProvisionerDaemon) string { return d.APIVersion }),
	}, Initial: []string{"name", "status", "current job", "tags", "key name", "path", "last seen", "version", "organization"},
		JSON: func(d sdk.ProvisionerDaemon) any {
			return daemonJSON{d, org.Name}
		}}
	out.Columns = slices.Concat(out.Columns,
		jobColumns("current job ", func(d sdk.ProvisionerDaemon) *sdk.ProvisionerDaemonJob { return d.CurrentJob }),
		jobColumns("previous job ", func(d sdk.ProvisionerDaemon) *sdk.ProvisionerDaemonJob { return d.PreviousJob }))
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List provisioners",
		Long: `List the provisioners of an organization, and the built-in ones, which serve all. Template admins see all of them, other users their own. "path" tells whether the server's packets travel directly or
through a relay; "coder ping NAME" measures the path from here.`,
		Example: `  coder provisioner list
  coder provisioner list -o json
  coder provisioner list --org east`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if org, err = flag.Find(cmd.Context(), client); err != nil {
				return err
			}
			if cmd.Flags().Changed("show-offline") && !offline {
				if len(query.Statuses) == 0 {
					query.Statuses = []string{"idle", "busy"}
				}
				query.Statuses = slices.DeleteFunc(query.Statuses, func(s string) bool { return s == "offline" })
			}
			if query.MaxAge, err = flags.ParseDuration(age); err != nil {
				return err
			}
			daemons, err := client.FindProvisionerDaemons(cmd.Context(), org.ID.String(), query)
			if err != nil {
				return err
			}
			if len(daemons) == 0 && len(query.Statuses) == 0 {
				noProvisioners(cmd.Context(), g, client)
			}
			return out.Print(g.Streams().Out, daemons)
		},
	}
	cmd.Flags().BoolVarP(&offline, "show-offline", "f", true, "list provisioners that are offline too")
	cmd.Flags().StringVarP(&age, "max-age", "m", "",
		"list only provisioners that were seen within this time, such as 24h (default any)")
	cmd.Flags().StringSliceVarP(&query.Statuses, "status", "s", nil,
		"statuses to list: idle, busy, offline (default all)")
	cmd.Flags().IntVarP(&query.Limit, "limit", "l", 0, "number of provisioners to list (default all)")
	out.Flags(cmd)
	flag.Add(cmd)
	return cmd
}

// noProvisioners explains an empty list: only template admins see shared provisioners.
func noProvisioners(ctx context.Context, g *global.Flags, client *sdk.Client) {
	me, err := client.User(ctx, sdk.Me)
	admin := slices.ContainsFunc(me.Roles,
		func(r sdk.Role) bool { return r.Name == "owner" || r.Name == "template-admin" })
	if err == nil && admin {
		fmt.Fprintln(g.Streams().Err,
			"There are no provisioners. Builds wait until one is online. Start one: coder provisioner start")
		return
	}
	fmt.Fprintln(g.Streams().Err,
		"You have no provisioners of your own. Shared provisioners run your builds; only template admins see them.")
}
