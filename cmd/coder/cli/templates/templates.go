// Package templates holds the commands for templates and their versions.
package templates

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

func Command(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "templates", Aliases: []string{"template"}, Short: "Manage templates", Example: "  coder templates init docker && coder templates push docker -d docker"}
	cmd.AddCommand(templatesInitCmd(g), templatesPushCmd(g, "push"), templatesPushCmd(g, "create"), templatesPullCmd(g), templatesListCmd(g),
		templatesEditCmd(g), templatesDeleteCmd(g), versionsCmd(g))
	return cmd
}

// findTemplate finds a template by name.
func findTemplate(ctx context.Context, client *sdk.Client, name string) (sdk.Template, error) {
	t, err := client.TemplateByName(ctx, sdk.DefaultOrganization, name)
	if err != nil && fault.CodeOf(err) == fault.NotFound {
		return t, exit.Try(fault.New(fault.NotFound, "there is no template %q", name), "coder templates list")
	}
	return t, err
}

func templatesListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.Template]{Columns: []output.Column[sdk.Template]{
		output.Col("name", func(t sdk.Template) string { return t.Name }),
		output.Col("display name", func(t sdk.Template) string { return t.DisplayName }),
		output.Col("description", func(t sdk.Template) string { return t.Description }),
		output.Col("last updated", func(t sdk.Template) string { return output.Ago(t.UpdatedAt) }),
		output.Col("used by", func(t sdk.Template) string {
			if t.ActiveUserCount < 0 {
				return ""
			}
			return strconv.Itoa(t.ActiveUserCount)
		}),
		output.Col("created by", func(t sdk.Template) string { return t.CreatedByName }),
		output.Col("deprecated", func(t sdk.Template) string { return t.DeprecationMessage }),
		output.Col("id", func(t sdk.Template) string { return t.ID.String() }),
		output.Col("active version id", func(t sdk.Template) string { return t.ActiveVersionID.String() }),
	}, Initial: []string{"name", "description", "last updated", "used by"}}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List templates",
		Example: `  coder templates list`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			templates, err := client.OrganizationTemplates(cmd.Context(), sdk.DefaultOrganization)
			if err != nil {
				return err
			}
			if len(templates) == 0 && out.Format == "table" {
				fmt.Fprintln(g.Streams().Err, "There are no templates yet. Write a starter: coder templates init")
				return nil
			}
			return out.Print(g.Streams().Out, templates)
		},
	}
	out.Flags(cmd)
	return cmd
}

func templatesEditCmd(g *global.Flags) *cobra.Command {
	var name, display, description, icon, deprecated string
	var ttl time.Duration
	var active bool
	cmd := &cobra.Command{
		Use:     "edit TEMPLATE",
		Short:   "Change a template's name and settings",
		Example: `  coder templates edit docker --description "Containers on the build host" --default-ttl 8h`,
		Args:    flags.Argument("template"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			t, err := findTemplate(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			var req sdk.UpdateTemplateRequest
			changed := false
			given := func(flag string) bool {
				is := cmd.Flags().Changed(flag)
				changed = changed || is
				return is
			}
			for flag, field := range map[string]struct {
				into **string
				from *string
			}{
				"name": {&req.Name, &name}, "display-name": {&req.DisplayName, &display}, "description": {&req.Description, &description},
				"icon": {&req.Icon, &icon}, "deprecated": {&req.DeprecationMessage, &deprecated},
			} {
				if given(flag) {
					*field.into = field.from
				}
			}
			if given("default-ttl") {
				ms := ttl.Milliseconds()
				req.DefaultTTLMillis = &ms
			}
			if given("require-active-version") {
				req.RequireActiveVersion = &active
			}
			if !changed {
				return exit.Try(fault.New(fault.Invalid, "no changes given"), "coder templates edit --help")
			}
			if _, err := client.UpdateTemplate(cmd.Context(), t.ID, req); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "Updated the template %s.\n", t.Name)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "new name")
	f.StringVar(&display, "display-name", "", "name shown to users")
	f.StringVar(&description, "description", "", "description")
	f.StringVar(&icon, "icon", "", "URL of an icon")
	f.StringVar(&deprecated, "deprecated", "", "reason not to create new workspaces from the template; empty removes it")
	f.DurationVar(&ttl, "default-ttl", 0, "default time after each start when workspaces stop, such as 8h; 0 means never")
	f.BoolVar(&active, "require-active-version", false, "require the active version to start workspaces")
	return cmd
}

func templatesDeleteCmd(g *global.Flags) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "delete TEMPLATE...",
		Aliases: []string{"rm"},
		Short:   "Delete templates that no workspace uses",
		Example: `  coder templates delete docker -y`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if err := g.Confirm(cmd, yes, "Delete "+strings.Join(args, ", ")+"?", false); err != nil {
				return err
			}
			for _, name := range args {
				t, err := findTemplate(cmd.Context(), client, name)
				if err != nil {
					return err
				}
				if err := client.DeleteTemplate(cmd.Context(), t.ID); err != nil {
					return exit.Try(err, "coder list --all --search template:%s", t.Name)
				}
				fmt.Fprintf(g.Streams().Err, "The template %s has been deleted.\n", t.Name)
			}
			return nil
		},
	}
	flags.Yes(cmd, &yes)
	return cmd
}

func templatesPullCmd(g *global.Flags) *cobra.Command {
	var yes, tarOut, zipOut bool
	var versionName string
	cmd := &cobra.Command{
		Use:   "pull TEMPLATE [folder]",
		Short: "Download a template's source into a folder",
		Example: `  coder templates pull docker
  coder templates pull docker --tar >docker.tar`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			client, err := g.Client(ctx)
			if err != nil {
				return err
			}
			t, err := findTemplate(ctx, client, args[0])
			if err != nil {
				return err
			}
			version, err := findVersion(ctx, client, t, versionName)
			if err != nil {
				return err
			}
			if tarOut || zipOut {
				format := map[bool]string{true: "zip", false: "tar"}[zipOut]
				return client.Download(ctx, version.Job.FileID, format, g.Streams().Out)
			}
			dir := t.Name
			if len(args) == 2 {
				dir = args[1]
			}
			if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
				if err := g.Confirm(cmd, yes, "Overwrite what is in "+dir+"?", false); err != nil {
					return err
				}
			}
			if err := pullInto(ctx, client, version.Job.FileID, dir); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "Version %s of %s is in %s.\n", version.Name, t.Name, dir)
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&tarOut, "tar", false, "write a tar archive to standard output")
	f.BoolVar(&zipOut, "zip", false, "write a zip archive to standard output")
	f.StringVar(&versionName, "version", "", "name of the version (default the active one)")
	flags.Yes(cmd, &yes)
	cmd.MarkFlagsMutuallyExclusive("tar", "zip")
	return cmd
}

// findVersion is the named version of a template; "" and "active" are the active one.
func findVersion(ctx context.Context, client *sdk.Client, t sdk.Template, name string) (sdk.TemplateVersion, error) {
	if name == "" || name == "active" {
		return client.TemplateVersion(ctx, t.ActiveVersionID)
	}
	v, err := client.TemplateVersionByName(ctx, t.ID, name)
	if err != nil && fault.CodeOf(err) == fault.NotFound {
		return v, exit.Try(fault.New(fault.NotFound, "the template %s has no version %q", t.Name, name), "coder templates versions list %s", t.Name)
	}
	return v, err
}

// pullInto unpacks a stored archive into a folder.
func pullInto(ctx context.Context, client *sdk.Client, file uuid.UUID, dir string) error {
	temp, err := os.CreateTemp("", "coder-template-*.tar")
	if err != nil {
		return fmt.Errorf("make temporary file: %w", err)
	}
	defer os.Remove(temp.Name())
	defer temp.Close()
	if err := client.Download(ctx, file, "tar", temp); err != nil {
		return err
	}
	if _, err := temp.Seek(0, 0); err != nil {
		return fmt.Errorf("read temporary file: %w", err)
	}
	return unpack(temp, dir)
}

func versionsCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "versions", Aliases: []string{"version"}, Short: "Manage a template's versions", Example: "  coder templates versions list docker"}
	cmd.AddCommand(versionsListCmd(g), versionsPromoteCmd(g))
	return cmd
}

func versionsListCmd(g *global.Flags) *cobra.Command {
	type row struct {
		sdk.TemplateVersion
		Active bool `json:"active"`
	}
	out := output.List[row]{Columns: []output.Column[row]{
		output.Col("name", func(r row) string { return r.Name }),
		output.Col("created at", func(r row) string { return output.Ago(r.CreatedAt) }),
		output.Col("created by", func(r row) string { return r.CreatedBy.Username }),
		output.Col("status", func(r row) string { return string(r.Job.Status) }),
		output.Col("active", func(r row) string { return map[bool]string{true: "active"}[r.Active] }),
		output.Col("message", func(r row) string { return r.Message }),
		output.Col("id", func(r row) string { return r.ID.String() }),
	}, Initial: []string{"name", "created at", "created by", "status", "active"}}
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
			t, err := findTemplate(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			versions, err := client.TemplateVersions(cmd.Context(), t.ID)
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
	out.Flags(cmd)
	return cmd
}

func versionsPromoteCmd(g *global.Flags) *cobra.Command {
	var templateName, versionName string
	cmd := &cobra.Command{
		Use:     "promote",
		Short:   "Activate a version",
		Example: `  coder templates versions promote --template docker --template-version v2`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if templateName == "" || versionName == "" {
				return exit.Try(fault.New(fault.Invalid, "--template and --template-version are required"), "coder templates versions list TEMPLATE")
			}
			client, err := g.Client(ctx)
			if err != nil {
				return err
			}
			t, err := findTemplate(ctx, client, templateName)
			if err != nil {
				return err
			}
			v, err := findVersion(ctx, client, t, versionName)
			if err != nil {
				return err
			}
			if err := client.UpdateActiveVersion(ctx, t.ID, sdk.UpdateActiveVersionRequest{ID: v.ID}); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "Version %s of %s is active.\n", v.Name, t.Name)
			return nil
		},
	}
	cmd.Flags().StringVarP(&templateName, "template", "t", "", "name of the template")
	cmd.Flags().StringVar(&versionName, "template-version", "", "name of the version")
	return cmd
}

// templateName is the argument, or the folder's name.
func templateName(args []string, flag, dir string) (string, error) {
	switch {
	case len(args) == 1:
		return args[0], nil
	case flag != "":
		return flag, nil
	case dir == "-":
		return "", exit.Try(fault.New(fault.Invalid, "a template from standard input needs a name"), "coder templates push NAME -d -")
	}
	full, err := filepath.Abs(dir)
	if err != nil {
		return "", errors.Join(fault.New(fault.Invalid, "the folder %q cannot be found", dir), err)
	}
	return filepath.Base(full), nil
}
