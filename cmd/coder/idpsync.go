package main

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/coderd/idpsync"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/signin"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// syncOptions are the flags of `coder server` that say which memberships follow from the claims of the OpenID Connect
// provider.
type syncOptions struct {
	groupMapping, groupFilter string
	groupCreate               bool

	roleField, roleMapping string
	roleDefault            []string

	organizationField, organizationMapping string
	organizationDefault                    bool
}

func (o *syncOptions) flags(f *pflag.FlagSet, c *signin.OIDCConfig) {
	f.StringVar(&c.GroupField, "oidc-group-field", "", "claim with the groups of a user, for the groups of the default organization and for --oidc-allowed-groups (default none)")
	f.StringVar(&o.groupMapping, "oidc-group-mapping", "{}", `JSON object that renames groups of the provider, such as {"oidc-devs": "developers"}`)
	f.BoolVar(&o.groupCreate, "oidc-group-auto-create", false,
		"create groups that are named in the claim and do not exist")
	f.StringVar(&o.groupFilter, "oidc-group-regex-filter", ".*",
		"regular expression (RE2) that the names of groups must match")
	f.StringSliceVar(&c.AllowedGroups, "oidc-allowed-groups", nil,
		"groups of the provider whose members may sign in; requires --oidc-group-field (default all users)")
	f.StringVar(&o.roleField, "oidc-user-role-field", "", "claim with the roles of a user in the deployment; administrators then cannot change these roles (default none)")
	f.StringVar(&o.roleMapping, "oidc-user-role-mapping", "{}", `JSON object with the roles for each value of that claim, such as {"it-staff": ["user-admin", "auditor"]}`)
	f.StringSliceVar(&o.roleDefault, "oidc-user-role-default", nil,
		"roles in the deployment of all users who sign in with OpenID Connect, with --oidc-user-role-field")
	f.StringVar(&o.organizationField, "oidc-organization-field", "",
		"claim with the organizations of a user (default none)")
	f.StringVar(&o.organizationMapping, "oidc-organization-mapping", "{}", `JSON object with the ids of the organizations for each value of that claim, such as {"sales": ["4ad86302-94fd-4c69-b6ed-8bd8e3ba4b53"]}`)
	f.BoolVar(&o.organizationDefault, "oidc-organization-assign-default", true,
		"make all users members of the default organization, with --oidc-organization-field")
}

// initial returns the settings, or the fault Invalid.
func (o *syncOptions) initial(groupField string) (idpsync.Initial, error) {
	out := idpsync.Initial{
		Organizations: sdk.OrganizationSyncSettings{Field: o.organizationField, Mapping: sdk.Map[sdk.List[uuid.UUID]]{}, AssignDefault: o.organizationDefault},
		Groups:        sdk.GroupSyncSettings{Field: groupField, Mapping: sdk.Map[sdk.List[uuid.UUID]]{}, AutoCreate: o.groupCreate},
		Site:          idpsync.SiteRoles{Field: o.roleField, Default: o.roleDefault},
	}
	if o.groupFilter != "" && o.groupFilter != ".*" {
		if _, err := regexp.Compile(o.groupFilter); err != nil {
			return out, fault.New(fault.Invalid, "--oidc-group-regex-filter is not a regular expression: %w", err).
				WithDetail("It must be one of RE2, such as ^eng-.")
		}
		out.Groups.RegexFilter = &o.groupFilter
	}
	for _, option := range []struct {
		flag, text, form string
		to               any
	}{
		{"--oidc-group-mapping", o.groupMapping, `{"oidc-devs": "developers"}`, &out.Groups.LegacyNameMapping},
		{"--oidc-user-role-mapping", o.roleMapping, `{"it-staff": ["user-admin", "auditor"]}`, &out.Site.Mapping},
		{"--oidc-organization-mapping", o.organizationMapping, `{"sales": ["4ad86302-94fd-4c69-b6ed-8bd8e3ba4b53"]}`, &out.Organizations.Mapping},
	} {
		if option.text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(option.text), option.to); err != nil {
			return out, fault.New(fault.Invalid, "%s is not valid: %w", option.flag, err).
				WithDetail("It looks like %s.", option.form)
		}
	}
	roles := slices.Concat(append(slices.Collect(maps.Values(out.Site.Mapping)), out.Site.Default)...)
	for _, role := range roles {
		if role != "member" && !rbac.IsSiteRole(role) {
			return out, fault.New(fault.Invalid, "the role %q of --oidc-user-role-mapping or --oidc-user-role-default does not exist", role).
				WithDetail("The roles are owner, user-admin, template-admin, auditor and member.")
		}
	}
	return out, nil
}
