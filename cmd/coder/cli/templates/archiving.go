package templates

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

type archiveOptions struct {
	all, yes bool
	org      organization.Flag
}

func templatesArchiveCmd(g *global.Flags) *cobra.Command {
	var opts archiveOptions
	cmd := &cobra.Command{
		Use:   "archive TEMPLATE...",
		Short: "Archive unused versions of templates",
		Long: `Archive the versions of templates that are neither active nor in use by a workspace: those whose import did not succeed or, with --all,
all of them. Archived versions are hidden and cannot be chosen for new workspaces. "coder templates versions unarchive" brings one back.`,
		Example: `  coder templates archive docker --all`,
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return runArchive(cmd, g, args, opts) },
	}
	cmd.Flags().BoolVarP(&opts.all, "all", "a", false, "also archive unused versions whose import succeeded")
	flags.Yes(cmd, &opts.yes)
	opts.org.AddLookup(cmd)
	return cmd
}

func runArchive(cmd *cobra.Command, g *global.Flags, names []string, opts archiveOptions) error {
	ctx := cmd.Context()
	client, err := g.Client(ctx)
	if err != nil {
		return err
	}
	var found []sdk.Template
	for _, name := range names {
		t, err := opts.org.Template(ctx, client, name)
		if err != nil {
			return err
		}
		found = append(found, t)
	}
	if err := g.Confirm(cmd, opts.yes, "Archive unused versions of "+strings.Join(names, ", ")+"?", true); err != nil {
		return err
	}
	for _, t := range found {
		done, err := client.ArchiveTemplateVersions(ctx, t.ID, sdk.ArchiveTemplateVersionsRequest{All: opts.all})
		if err != nil {
			return err
		}
		fmt.Fprintf(g.Streams().Err, "Archived versions of %s: %d.\n", t.Name, len(done.ArchivedIDs))
	}
	return nil
}

// versionsArchiveCmd is "archive", or "unarchive" with archive false.
func versionsArchiveCmd(g *global.Flags, archive bool) *cobra.Command {
	var opts archiveOptions
	cmd := &cobra.Command{
		Use:     "archive TEMPLATE VERSION...",
		Short:   "Archive versions of a template",
		Long:    `Archive versions of a template. They are hidden and cannot be chosen for new workspaces; workspaces that use one keep working.`,
		Example: `  coder templates versions archive docker v1 v2`,
		Args:    cobra.MinimumNArgs(2),
	}
	if !archive {
		cmd.Use, cmd.Short, cmd.Long = "unarchive TEMPLATE VERSION...", "Bring archived versions of a template back", ""
		cmd.Example = `  coder templates versions unarchive docker v1`
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := g.Client(cmd.Context())
		if err != nil {
			return err
		}
		t, err := opts.org.Template(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		versions, err := findVersions(cmd.Context(), client, t, args[1:])
		if err != nil {
			return err
		}
		question := "Archive " + strings.Join(args[1:], ", ") + " of " + t.Name + "?"
		if err := g.Confirm(cmd, opts.yes || !archive, question, true); err != nil {
			return err
		}
		for _, v := range versions {
			if err := client.ArchiveTemplateVersion(cmd.Context(), v.ID, archive); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "%s version %s of %s.\n", map[bool]string{
				true: "Archived", false: "Unarchived",
			}[archive], v.Name, t.Name)
		}
		return nil
	}
	flags.Yes(cmd, &opts.yes)
	opts.org.AddLookup(cmd)
	return cmd
}

// findVersions returns versions by their names, all or an error.
func findVersions(
	ctx context.Context, client *sdk.Client, t sdk.Template, names []string,
) ([]sdk.TemplateVersion, error) {
	var found []sdk.TemplateVersion
	for _, name := range names {
		v, err := findVersion(ctx, client, t, name)
		if err != nil {
			return nil, err
		}
		found = append(found, v)
	}
	return found, nil
}
