package templates

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// findVersion returns a version of a template by name. "" and "active" mean the active one.
func findVersion(ctx context.Context, client *sdk.Client, t sdk.Template, name string) (sdk.TemplateVersion, error) {
	if name == "" || name == "active" {
		return client.TemplateVersion(ctx, t.ActiveVersionID)
	}
	v, err := client.TemplateVersionByName(ctx, t.ID, name)
	if err != nil && fault.CodeOf(err) == fault.NotFound {
		return v, exit.Try(fault.New(fault.NotFound, "the template %s has no version %q", t.Name, name),
			"coder templates versions list %s", shell.Word(t.Name))
	}
	return v, err
}

func versionsCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "versions", Aliases: []string{"version"}, Short: "Manage a template's versions", Example: "  coder templates versions list docker"}
	cmd.AddCommand(versionsListCmd(g), versionsPromoteCmd(g), versionsArchiveCmd(g, true), versionsArchiveCmd(g, false))
	return cmd
}

func versionsListCmd(g *global.Flags) *cobra.Command {
	type row struct {
		sdk.TemplateVersion
		Active bool
	}
	out := output.List[row]{Columns: []output.Column[row]{
		output.Col("name", func(r row) string { return r.Name }),
		output.Col("created at", func(r row) string { return output.Ago(r.CreatedAt) }),
		output.Col("created by", func(r row) string { return r.CreatedBy.Username }),
		output.Col("status", func(r row) string { return string(r.Job.Status) }),
		output.Col("archived", func(r row) string { return map[bool]string{true: "archived"}[r.Archived] }),
		output.Col("active", func(r row) string { return map[bool]string{true: "active"}[r.Active] }),
		output.Col("message", func(r row) string { return r.Message }),
		output.Col("id", func(r row) string { return r.ID.String() }),
	}, Initial: []string{"name", "created at", "created by", "status", "active"}, JSON: func(r row) any {
		return versionJSON{r.TemplateVersion, r.Active, r.TemplateVersion}
	}}
	var org organization.Flag
	var archived bool
	cmd := &cobra.Command{
		Use:     "list TEMPLATE",
		Aliases: []string{"ls"},
		Short:   "List a template's versions",
		Example: `  coder templates versions list docker`,
		Args:    flags.Argument("template"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			t, err := org.Template(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			list := client.TemplateVersions
			if archived {
				list = client.AllTemplateVersions
			}
			versions, err := list(cmd.Context(), t.ID)
			if err != nil {
				return err
			}
			var rows []row
			for _, v := range versions {
				rows = append(rows, row{v, v.ID == t.ActiveVersionID})
			}
			return out.Print(g.Streams().Out, rows)
		},
	}
	cmd.Flags().BoolVar(&archived, "include-archived", false, "list archived versions too")
	out.Flags(cmd)
	org.AddLookup(cmd)
	return cmd
}

// versionJSON is like templateJSON.
type versionJSON struct {
	flatVersion
	Active          bool                `json:"active"`
	TemplateVersion sdk.TemplateVersion `json:"TemplateVersion"`
}

type promoteOptions struct {
	template, version string // names
	org               organization.Flag
}

func versionsPromoteCmd(g *global.Flags) *cobra.Command {
	var opts promoteOptions
	cmd := &cobra.Command{
		Use:     "promote",
		Short:   "Activate a version",
		Example: `  coder templates versions promote --template docker --template-version v2`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runPromote(cmd.Context(), g, opts) },
	}
	cmd.Flags().StringVarP(&opts.template, "template", "t", "", "name of the template")
	cmd.Flags().StringVar(&opts.version, "template-version", "", "name of the version")
	opts.org.AddLookup(cmd)
	return cmd
}

func runPromote(ctx context.Context, g *global.Flags, opts promoteOptions) error {
	if opts.template == "" || opts.version == "" {
		return exit.Try(fault.New(fault.Invalid, "--template and --template-version are required"),
			"coder templates versions list TEMPLATE")
	}
	client, err := g.Client(ctx)
	if err != nil {
		return err
	}
	t, err := opts.org.Template(ctx, client, opts.template)
	if err != nil {
		return err
	}
	v, err := findVersion(ctx, client, t, opts.version)
	if err != nil {
		return err
	}
	if err := client.UpdateActiveVersion(ctx, t.ID, sdk.UpdateActiveVersionRequest{ID: v.ID}); err != nil {
		return err
	}
	fmt.Fprintf(g.Streams().Err, "Version %s of %s is active.\n", v.Name, t.Name)
	return nil
}
