// Package organization chooses the organization that a command works in, and finds templates by name across
// organizations. It knows no command and no global flag.
package organization

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/nearest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// Flag is --org of one command. The zero value chooses by the user's memberships.
type Flag struct{ name string }

// Of returns the flag with a value, "" for none.
func Of(name string) Flag { return Flag{name} }

// Add adds the flag, which CODER_ORGANIZATION also sets.
func (f *Flag) Add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.name, "org", "O", "",
		"name or id of the organization (default your only one, or else the default organization)")
	flags.SetEnv(cmd.Flags().Lookup("org"), "CODER_ORGANIZATION")
}

// AddLookup adds the flag to a command that finds a template by name in all organizations without it.
func (f *Flag) AddLookup(cmd *cobra.Command) {
	f.Add(cmd)
	cmd.Flags().Lookup("org").Usage = "name or id of the template's organization (default any)"
}

// AddFilter adds the flag to a command that works in all organizations without it.
func (f *Flag) AddFilter(cmd *cobra.Command) {
	f.Add(cmd)
	cmd.Flags().Lookup("org").Usage = "name or id of the organization (default all)"
}

// Given reports whether an organization is named.
func (f *Flag) Given() bool { return f.name != "" }

// Find returns the organization that is named, or else the user's only one. Users of several, who name none, get the
// default one if they are members of it.
func (f *Flag) Find(ctx context.Context, client *sdk.Client) (sdk.Organization, error) {
	if f.Given() {
		return Named(ctx, client, f.name)
	}
	mine, err := client.UserOrganizations(ctx, sdk.Me)
	if err != nil {
		return sdk.Organization{}, err
	}
	if len(mine) == 1 {
		return mine[0], nil
	}
	if i := slices.IndexFunc(mine, func(o sdk.Organization) bool { return o.IsDefault }); i >= 0 {
		return mine[i], nil
	}
	if len(mine) == 0 {
		return sdk.Organization{}, exit.Try(fault.New(fault.Invalid, "you are not a member of an organization"),
			"Name one with --org, or ask an administrator to add you.")
	}
	return sdk.Organization{}, exit.Try(fault.New(fault.Invalid, "you are a member of several organizations: %s",
		names(mine)), "--org %s", shell.Word(mine[0].Name))
}

// Named returns an organization by name or id. The error for an unknown one lists those that the user sees.
func Named(ctx context.Context, client *sdk.Client, name string) (sdk.Organization, error) {
	org, err := client.Organization(ctx, name)
	if fault.CodeOf(err) != fault.NotFound {
		return org, err
	}
	known, listErr := client.Organizations(ctx)
	if listErr != nil {
		return org, listErr
	}
	unknown := fault.New(fault.NotFound, "there is no organization %q, or you cannot see it", name)
	if len(known) == 0 {
		return org, exit.Try(unknown, "Ask an administrator to add you to an organization.")
	}
	near := nearest.To(name, nameList(known))
	return org, exit.Try(unknown.WithDetail("Your organizations: %s", names(known)), "--org %s",
		shell.Word(cmp.Or(near, known[0].Name)))
}

// Template returns a template by name: of the organization that is named, or else the only one that the user sees in
// any organization.
func (f *Flag) Template(ctx context.Context, client *sdk.Client, name string) (sdk.Template, error) {
	found, err := f.templates(ctx, client, name)
	if err != nil {
		return sdk.Template{}, err
	}
	switch len(found) {
	case 0:
		missing := fault.New(fault.NotFound, "there is no template %q", name)
		if near := f.nearestTemplate(ctx, client, name); near != "" {
			return sdk.Template{}, exit.Try(missing, "Did you mean %s? List templates with: coder templates list", near)
		}
		return sdk.Template{}, exit.Try(missing, "coder templates list")
	case 1:
		return found[0], nil
	}
	var where []string
	for _, t := range found {
		where = append(where, t.OrganizationName)
	}
	slices.Sort(where)
	return sdk.Template{}, exit.Try(fault.New(fault.Conflict, "several organizations have a template %q: %s", name,
		strings.Join(where, ", ")), "--org %s", shell.Word(where[0]))
}

// nearestTemplate returns the template that is spelled almost like the name, "" if there is none or that cannot be
// found out.
func (f *Flag) nearestTemplate(ctx context.Context, client *sdk.Client, name string) string {
	list, err := f.Templates(ctx, client, "")
	if err != nil {
		return ""
	}
	var names []string
	for _, t := range list {
		names = append(names, t.Name)
	}
	return nearest.To(name, names)
}

func (f *Flag) templates(ctx context.Context, client *sdk.Client, name string) ([]sdk.Template, error) {
	if !f.Given() {
		if name == "" || strings.Contains(name, `"`) {
			return nil, nil // no template has such a name, and the search could not express it
		}
		return client.Templates(ctx, fmt.Sprintf(`exact_name:"%s"`, name), "")
	}
	t, err := client.TemplateByName(ctx, f.name, name)
	if fault.CodeOf(err) == fault.NotFound {
		_, err = f.Find(ctx, client)
		return nil, err
	}
	return []sdk.Template{t}, err
}

// Templates returns the templates of the organization that is named, or else all that the user sees, in an order; ""
// means by name.
func (f *Flag) Templates(ctx context.Context, client *sdk.Client, order sdk.TemplateOrder) ([]sdk.Template, error) {
	if !f.Given() {
		return client.Templates(ctx, "", order)
	}
	org, err := f.Find(ctx, client)
	if err != nil {
		return nil, err
	}
	return client.OrganizationTemplates(ctx, org.ID.String(), order)
}

func names(all []sdk.Organization) string { return strings.Join(nameList(all), ", ") }

func nameList(all []sdk.Organization) []string {
	out := make([]string, len(all))
	for i, o := range all {
		out[i] = o.Name
	}
	return out
}
