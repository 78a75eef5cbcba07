package templates

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

type editOptions struct {
	name, display, description, icon, deprecated string
	ttl                                          time.Duration
	active                                       bool     // require the active version
	share                                        string   // highest level of sharing
	audiences                                    []string // of workspaces' ID tokens
	buildAudience                                string   // of builds' ID tokens
	policy                                       policyOptions
	private, yes                                 bool
	org                                          organization.Flag
}

func templatesEditCmd(g *global.Flags) *cobra.Command {
	var opts editOptions
	cmd := &cobra.Command{
		Use:     "edit TEMPLATE",
		Short:   "Change a template's name and settings",
		Example: `  coder templates edit docker --description "Containers on the build host" --default-ttl 8h`,
		Args:    flags.Argument("template"),
		RunE:    func(cmd *cobra.Command, args []string) error { return runEdit(g, cmd, args[0], &opts) },
	}
	f := cmd.Flags()
	f.StringVar(&opts.name, "name", "", "new name")
	f.StringVar(&opts.display, "display-name", "", "name shown to users")
	f.StringVar(&opts.description, "description", "", "description")
	f.StringVar(&opts.icon, "icon", "", "URL of an icon")
	f.StringVar(&opts.deprecated, "deprecated", "",
		"reason not to create new workspaces from the template; empty removes it")
	f.DurationVar(&opts.ttl, "default-ttl", 0,
		"default time after each start when workspaces stop, such as 8h; 0 means never")
	f.BoolVar(&opts.active, "require-active-version", false, "require the active version to start workspaces")
	f.StringVar(&opts.share, "max-port-share-level", "", shareUsage)
	f.StringSliceVar(&opts.audiences, "identity-audiences", nil,
		"audiences for which workspaces get ID tokens, separated by commas; \"\" for none")
	f.StringVar(&opts.buildAudience, "identity-build-audience", "",
		"audience of the ID token that builds get; empty for no token")
	opts.policy.flags(f)
	opts.org.AddLookup(cmd)
	f.BoolVar(&opts.private, "private", false, "end the access of the group Everyone; --private=false restores it")
	flags.Yes(cmd, &opts.yes)
	return cmd
}

// runEdit changes what the flags name, and leaves the rest alone.
func runEdit(g *global.Flags, cmd *cobra.Command, name string, opts *editOptions) error {
	client, err := g.Client(cmd.Context())
	if err != nil {
		return err
	}
	t, err := opts.org.Template(cmd.Context(), client, name)
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
		"name": {&req.Name, &opts.name}, "display-name": {&req.DisplayName, &opts.display}, "description": {&req.Description, &opts.description},
		"icon": {&req.Icon, &opts.icon}, "deprecated": {&req.DeprecationMessage, &opts.deprecated},
	} {
		if given(flag) {
			*field.into = field.from
		}
	}
	if given("default-ttl") {
		ms := opts.ttl.Milliseconds()
		req.DefaultTTLMillis = &ms
	}
	if given("require-active-version") {
		req.RequireActiveVersion = &opts.active
	}
	if given("max-port-share-level") {
		req.MaxPortShareLevel = (*sdk.AppShare)(&opts.share)
	}
	if given("identity-audiences") {
		audiences := sdk.List[string](opts.audiences)
		req.IdentityAudiences = &audiences
	}
	if given("identity-build-audience") {
		req.IdentityBuildAudience = &opts.buildAudience
	}
	opts.policy.apply(given, t, &req)
	open := given("private") && !opts.private
	req.DisableEveryoneGroupAccess = opts.private
	if !changed {
		return exit.Try(fault.New(fault.Invalid, "no changes given"), "coder templates edit --help")
	}
	if err := g.Confirm(cmd, opts.yes || !g.Streams().InTTY, "Change the template "+t.Name+"?", true); err != nil {
		return err
	}
	if _, err := client.UpdateTemplate(cmd.Context(), t.ID, req); err != nil {
		return err
	}
	if open {
		everyone := map[string]string{t.OrganizationID.String(): sdk.RoleUse}
		if err := client.UpdateTemplateACL(cmd.Context(), t.ID, sdk.UpdateTemplateACLRequest{
			GroupPerms: everyone,
		}); err != nil {
			return err
		}
	}
	fmt.Fprintf(g.Streams().Err, "Updated the template %s.\n", t.Name)
	return nil
}
