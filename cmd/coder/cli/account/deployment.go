package account

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func deploymentCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deployment",
		Short: "Show what runs in the deployment, what it costs, and its settings",
		Long: `Show what runs in the deployment, who uses it, what it costs, and its settings. Requires the role
Owner.`,
		Example: `  coder deployment overview
  coder deployment costs --by user
  coder deployment settings --search oidc`,
	}
	cmd.AddCommand(overviewCmd(g), activityCmd(g), costsCmd(g), settingsCmd(g))
	return cmd
}

func overviewCmd(g *global.Flags) *cobra.Command {
	var format, zone string
	cmd := &cobra.Command{
		Use:   "overview",
		Short: "Show workspaces, builds, the queue, users, costs and versions",
		Long: `Show workspaces, builds, the queue, users, costs, and the versions of servers and agents. With --output
json, each of the last 30 days and each template, group and user has its numbers. Requires the role Owner.`,
		Example: `  coder deployment overview
  coder deployment overview -o json | jq .queue.waiting`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "text" && format != "json" {
				return output.BadFormat(format, "text or json")
			}
			got, err := overviewOf(cmd, g, zone)
			if err != nil {
				return err
			}
			if format == "json" {
				return output.JSON(g.Streams().Out, got)
			}
			return printOverview(g.Streams().Out, got)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	_ = cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"json", "text"}, cobra.ShellCompDirectiveNoFileComp))
	zoneFlag(cmd, &zone)
	return cmd
}

func activityCmd(g *global.Flags) *cobra.Command {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	out := output.List[sdk.OverviewDay]{Columns: []output.Column[sdk.OverviewDay]{
		output.Col("date", func(d sdk.OverviewDay) string { return d.Date }),
		output.Col("builds", func(d sdk.OverviewDay) string { return number(d.Builds) }),
		output.Col("failed", func(d sdk.OverviewDay) string { return number(d.Failed) }),
		output.Col("canceled", func(d sdk.OverviewDay) string { return number(d.Canceled) }),
		output.Col("users", func(d sdk.OverviewDay) string { return number(d.Users) }),
	}}
	var zone string
	cmd := &cobra.Command{
		Use:   "activity",
		Short: "Count builds and connected users on each of the last 30 days",
		Long: `Count the builds that ended, those of them that failed, and the users who were connected to a workspace,
on each of the last 30 days. Requires the role Owner.`,
		Example: `  coder deployment activity
  coder deployment activity --timezone Europe/Berlin -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := overviewOf(cmd, g, zone)
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, got.Days)
		},
	}
	out.Flags(cmd)
	zoneFlag(cmd, &zone)
	return cmd
}

func costsCmd(g *global.Flags) *cobra.Command {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	out := output.List[sdk.CostOf]{Columns: []output.Column[sdk.CostOf]{
		output.Col("name", func(c sdk.CostOf) string { return c.Name }),
		output.Col("display name", func(c sdk.CostOf) string { return c.DisplayName }),
		output.Col("organization", func(c sdk.CostOf) string { return c.OrganizationName }),
		output.Col("workspaces", func(c sdk.CostOf) string { return number(c.Workspaces) }),
		output.Col("running", func(c sdk.CostOf) string { return number(c.Running) }),
		output.Col("daily cost", func(c sdk.CostOf) string { return number(c.DailyCost) }),
		output.Col("id", func(c sdk.CostOf) string { return c.ID.String() }),
	}, Initial: []string{"name", "organization", "workspaces", "running", "daily cost"}}
	var by string
	cmd := &cobra.Command{
		Use:   "costs",
		Short: "List what workspaces cost a day, by template, group or user",
		Long: `List what workspaces cost a day, in credits, by template, group or user; the dearest come first. Costs
are the daily_cost of resources, as quotas count it: what a stopped workspace keeps counts too. A workspace counts for each
group of its organization that its owner is in. Requires the role Owner.`,
		Example: `  coder deployment costs
  coder deployment costs --by group
  coder deployment costs --by user -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			costs := map[string]func(sdk.OverviewCosts) []sdk.CostOf{
				"template": func(c sdk.OverviewCosts) []sdk.CostOf { return c.Templates },
				"group":    func(c sdk.OverviewCosts) []sdk.CostOf { return c.Groups },
				"user":     func(c sdk.OverviewCosts) []sdk.CostOf { return c.Users },
			}[by]
			if costs == nil {
				return exit.Try(fault.New(fault.Invalid, "--by cannot be %q: it must be template, group or user", by),
					"coder deployment costs --by template")
			}
			got, err := overviewOf(cmd, g, "")
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, costs(got.Costs))
		},
	}
	out.Flags(cmd)
	cmd.Flags().StringVar(&by, "by", "template", "template, group or user")
	_ = cmd.RegisterFlagCompletionFunc("by",
		cobra.FixedCompletions([]string{"template", "group", "user"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func settingsCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.DeploymentOption]{Columns: []output.Column[sdk.DeploymentOption]{
		output.Col("flag", func(o sdk.DeploymentOption) string { return "--" + o.Flag }),
		output.Col("value", settingValue),
		output.Col("source", settingSource),
		output.Col("variable", func(o sdk.DeploymentOption) string { return o.Env }),
		output.Col("key", func(o sdk.DeploymentOption) string { return o.Name }),
		output.Col("default", func(o sdk.DeploymentOption) string { return o.Default }),
		output.Col("description", func(o sdk.DeploymentOption) string { return o.Description }),
	}, Initial: []string{"flag", "value", "source"}}
	var search string
	var chosen bool
	cmd := &cobra.Command{
		Use:   "settings",
		Short: "List the server's settings, and where each value comes from",
		Long: `List the settings of the server that answers, and whether each value comes from a flag, the environment,
a file or the default. Secrets are not shown, only whether they are set. Requires the role Owner.`,
		Example: `  coder deployment settings --set
  coder deployment settings --search "oidc group" --column flag,value,source,variable
  coder deployment settings -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			config, err := client.DeploymentConfig(cmd.Context())
			if err != nil {
				return err
			}
			words := strings.Fields(strings.ToLower(search))
			return out.Print(g.Streams().Out, slices.DeleteFunc(config.Options, func(o sdk.DeploymentOption) bool {
				return chosen && o.ValueSource == "default" || !settingHas(o, words)
			}))
		},
	}
	out.Flags(cmd)
	cmd.Flags().StringVar(&search, "search", "",
		"list those with all of these words in flag, variable, key, description, value or source")
	cmd.Flags().BoolVar(&chosen, "set", false, "list only those that do not have their default")
	return cmd
}

func zoneFlag(cmd *cobra.Command, zone *string) {
	cmd.Flags().StringVar(zone, "timezone", "UTC", "time zone in which days begin, such as Europe/Berlin")
}

func overviewOf(cmd *cobra.Command, g *global.Flags, zone string) (sdk.DeploymentOverview, error) {
	client, err := g.Client(cmd.Context())
	if err != nil {
		return sdk.DeploymentOverview{}, err
	}
	return client.DeploymentOverview(cmd.Context(), zone)
}

func settingSource(o sdk.DeploymentOption) string {
	return cmp.Or(map[string]string{"env": "environment", "yaml": "file"}[o.ValueSource], o.ValueSource)
}

func settingValue(o sdk.DeploymentOption) string {
	switch {
	case o.Annotations["secret"] != "true":
		return o.Value
	case o.ValueSource == "default":
		return ""
	default:
		return "(secret)"
	}
}

// settingHas reports whether all words, in lower case, occur in a setting.
func settingHas(o sdk.DeploymentOption, words []string) bool {
	text := strings.ToLower(strings.Join(
		[]string{o.Name, o.Flag, o.Env, o.Description, settingValue(o), settingSource(o)}, " "))
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// printOverview prints a line for each part of an overview.
func printOverview(w io.Writer, o sdk.DeploymentOverview) error {
	ws, queue := o.Workspaces, o.Queue
	var month sdk.OverviewDay
	for _, day := range o.Days {
		month.Builds, month.Failed = month.Builds+day.Builds, month.Failed+day.Failed
	}
	var today sdk.OverviewDay
	if n := len(o.Days); n > 0 {
		today = o.Days[n-1]
	}
	waiting := fmt.Sprintf("%d waiting", queue.Waiting)
	if queue.Waiting > 0 {
		oldest := time.Duration(queue.OldestWaitingSeconds * float64(time.Second))
		waiting += fmt.Sprintf(" (the oldest for %s)", oldest.Round(time.Second))
	}
	versions := map[string]int64{}
	for _, s := range o.Servers {
		versions[s.Version]++
	}
	agents := map[string]int64{}
	for _, v := range o.AgentVersions {
		agents[cmp.Or(v.Version, "not connected yet")] += v.Agents
	}
	for _, line := range [][2]string{
		{"Workspaces", fmt.Sprintf("%d: %d running, %d stopped, %d building, %d pending, %d failed; ", ws.Total,
			ws.Running, ws.Stopped, ws.Building, ws.Pending, ws.Failed) +
			fmt.Sprintf("%d dormant, %d prebuilt", ws.Dormant, ws.Prebuilt)},
		{"Queue", fmt.Sprintf("%s, %d running; provisioners: %d", waiting, queue.Running, queue.Provisioners)},
		{"Users", fmt.Sprintf("%d active, %d dormant, %d suspended; seen within an hour: %d", o.Users.Active,
			o.Users.Dormant, o.Users.Suspended, o.Users.SeenHour)},
		{"Today", fmt.Sprintf("builds: %d, failed: %d, connected users: %d", today.Builds, today.Failed, today.Users)},
		{fmt.Sprintf("%d days", len(o.Days)), fmt.Sprintf("builds: %d, failed: %d", month.Builds, month.Failed)},
		{"Cost", fmt.Sprintf("%d credits a day", o.Costs.DailyCost)},
		{"Servers", counted(versions)},
		{"Agents", counted(agents)},
	} {
		if _, err := fmt.Fprintf(w, "%-11s %s\n", line[0], line[1]); err != nil {
			return err
		}
	}
	return nil
}

// counted lists how many have each version, the most frequent first.
func counted(versions map[string]int64) string {
	var names []string
	for name := range versions {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(versions[b], versions[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s (%d)", name, versions[name])
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}
