package templates

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

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
