package workspaces

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

var workspaceColumns = []output.Column[sdk.Workspace]{
	output.Col("workspace", sdk.Workspace.FullName),
	output.Col("name", func(w sdk.Workspace) string { return w.Name }),
	output.Col("owner", func(w sdk.Workspace) string { return w.OwnerName }),
	output.Col("template", func(w sdk.Workspace) string { return w.TemplateName }),
	output.Col("status", func(w sdk.Workspace) string { return statusWord(statusOf(w)) }),
	output.Col("healthy", func(w sdk.Workspace) string {
		if w.LatestBuild.Transition != sdk.TransitionStart || w.LatestBuild.Job.Status != sdk.JobSucceeded {
			return ""
		}
		return strconv.FormatBool(w.Health.Healthy)
	}),
	output.Col("last built", func(w sdk.Workspace) string { return output.Ago(w.LatestBuild.CreatedAt) }),
	output.Col("last used", func(w sdk.Workspace) string { return output.Ago(w.LastUsedAt) }),
	output.Col("current version", func(w sdk.Workspace) string { return w.LatestBuild.TemplateVersionName }),
	output.Col("outdated", func(w sdk.Workspace) string { return strconv.FormatBool(w.Outdated) }),
	output.Col("starts at", func(w sdk.Workspace) string {
		if deref(w.AutostartSchedule) == "" {
			return ""
		}
		return readable(*w.AutostartSchedule)
	}),
	output.Col("stops after", func(w sdk.Workspace) string {
		if w.TTLMillis == nil || *w.TTLMillis == 0 {
			return ""
		}
		return (time.Duration(*w.TTLMillis) * time.Millisecond).String()
	}),
	output.Col("dormant at", func(w sdk.Workspace) string {
		if w.DormantAt == nil {
			return ""
		}
		return output.Ago(*w.DormantAt)
	}),
	output.Col("waiting for", func(w sdk.Workspace) string { return w.LatestBuild.Job.WaitingReason }),
	output.Col("favorite", func(w sdk.Workspace) string { return strconv.FormatBool(w.Favorite) }),
	output.Col("id", func(w sdk.Workspace) string { return w.ID.String() }),
	output.Col("organization name", func(w sdk.Workspace) string { return w.OrganizationName }),
	output.Col("organization id", func(w sdk.Workspace) string { return w.OrganizationID.String() }),
	output.Col("starts next", func(w sdk.Workspace) string { return strings.TrimSuffix(startsNext(w), none) }),
	output.Col("stops next", func(w sdk.Workspace) string { return strings.TrimSuffix(stopsAt(w), none) }),
	output.Col("daily cost", func(w sdk.Workspace) string { return strconv.Itoa(int(w.LatestBuild.DailyCost)) }),
	output.Col("template id", func(w sdk.Workspace) string { return w.TemplateID.String() }),
}

// statusDormant stands in lists for what a dormant workspace is besides.
const statusDormant sdk.WorkspaceStatus = "dormant"

// statusOf returns the status of a workspace for people. What still runs of a dormant workspace is stopped at once.
func statusOf(w sdk.Workspace) sdk.WorkspaceStatus {
	switch s := w.LatestBuild.Status; s {
	case sdk.WorkspaceRunning, sdk.WorkspaceStopped, sdk.WorkspaceCanceled:
		if w.DormantAt != nil {
			return statusDormant
		}
		return s
	default:
		return s
	}
}

func statusWord(s sdk.WorkspaceStatus) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(string(s[:1])) + string(s[1:])
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

const pathColumn = "path"

type listOptions struct {
	all    bool
	shared bool // with the user
	search string
	always string // is added to the search
	sort   string
	out    output.List[sdk.Workspace]
	paths  clientPaths // what the column "path" shows
	org    organization.Flag
}

func listCmd(g *global.Flags) *cobra.Command { return listOf(g, "") }

// listOf returns a command that lists those workspaces that a search always finds.
func listOf(g *global.Flags, always string) *cobra.Command {
	opts := listOptions{always: always}
	opts.out = output.List[sdk.Workspace]{
		Columns: append(slices.Clip(workspaceColumns),
			output.Col(pathColumn, func(w sdk.Workspace) string { return opts.paths.of(w) })),
		Initial: []string{"workspace", "template", "status", "healthy", "last built", "current version", "outdated"},
	}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List workspaces",
		Long: `List workspaces. The column "path" shows how connected clients reach each workspace, directly or relayed, and the round trip.
Dormant workspaces are listed only if the search says dormant:true.`,
		Example: `  coder list
  coder list --all --search status:running -o json
  coder list --shared-with-me
  coder list --search "owner:me dormant:true"
  coder list --all --sort used`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runList(g, cmd, &opts) },
	}
	cmd.Flags().BoolVarP(&opts.all, "all", "a", false, "include other users' workspaces")
	cmd.Flags().BoolVar(&opts.shared, "shared-with-me", false, "list workspaces that other users share with you")
	cmd.MarkFlagsMutuallyExclusive("all", "shared-with-me")
	cmd.Flags().StringVar(&opts.search, "search", "owner:me",
		"filter, such as owner:me name:x template:y organization:z status:running dormant:true")
	cmd.Flags().StringVar(&opts.sort, "sort", "",
		"order: name, used, created, status, owner or template (default: favorites, running ones, then by owner)")
	opts.org.AddFilter(cmd)
	opts.out.Flags(cmd)
	return cmd
}

func runList(g *global.Flags, cmd *cobra.Command, opts *listOptions) error {
	client, err := g.Client(cmd.Context())
	if err != nil {
		return err
	}
	if opts.all && !cmd.Flags().Changed("search") {
		opts.search = ""
	}
	if opts.shared {
		if !cmd.Flags().Changed("search") {
			opts.search = ""
		}
		opts.search = strings.TrimSpace(opts.search + " shared_with_user:me")
	}
	if opts.org.Given() {
		org, err := opts.org.Find(cmd.Context(), client)
		if err != nil {
			return err
		}
		opts.search = strings.TrimSpace(opts.search + " organization:" + org.ID.String())
	}
	opts.search = strings.TrimSpace(opts.search + " " + opts.always)
	// Read them concurrently, since the server asks the agents for their paths.
	pathsErr := make(chan error, 1)
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	if opts.out.Format == "table" && (len(opts.out.Chosen) == 0 || slices.Contains(opts.out.Chosen, pathColumn)) {
		go func() {
			var err error
			opts.paths, err = readPaths(ctx, client)
			pathsErr <- err
		}()
	} else {
		pathsErr <- nil
	}
	workspaces, err := client.AllWorkspaces(ctx, opts.search, sdk.WorkspaceOrder(opts.sort))
	if err != nil {
		return err
	}
	if err := <-pathsErr; err != nil {
		noPaths(g, err)
	}
	if slices.ContainsFunc(workspaces, func(w sdk.Workspace) bool { return opts.paths.of(w) != "" }) {
		opts.out.Initial = append(opts.out.Initial, pathColumn)
	}
	if len(workspaces) == 0 && opts.out.Format == "table" {
		return explainEmpty(ctx, g, client, opts.search)
	}
	if err := opts.out.Print(g.Streams().Out, workspaces); err != nil || opts.out.Format != "table" {
		return err
	}
	for _, ws := range workspaces {
		if line := waitingLine(ws.LatestBuild.Job); line != "" {
			fmt.Fprintf(g.Streams().Err, "%s: %s\n", ws.FullName(), line)
		}
	}
	return nil
}

// explainEmpty tells the user what to do about an empty list. Dormant workspaces are not listed, but they are there.
func explainEmpty(ctx context.Context, g *global.Flags, client *sdk.Client, search string) error {
	if !strings.Contains(search, "dormant:") {
		q := strings.TrimSpace(search + " dormant:true")
		dormant, err := client.Workspaces(ctx, sdk.WorkspacesQuery{Q: q, Limit: 1})
		if err != nil {
			return err
		}
		if dormant.Count > 0 {
			fmt.Fprintf(g.Streams().Err, "All matching workspaces are dormant. List them: coder list --search %s\n",
				shell.Word(q))
			return nil
		}
	}
	fmt.Fprintln(g.Streams().Err, "There are no workspaces. Create one: coder create")
	return nil
}
