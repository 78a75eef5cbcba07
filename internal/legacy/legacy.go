// Package legacy knows what templates for old versions of the Terraform provider coder use that the built-in version
// lacks: what replaces it, and how to rewrite a template. It knows Terraform's language, and runs nothing.
package legacy

import (
	"fmt"
	"slices"

	"github.com/hashicorp/go-version"
)

// Version is that of the provider coder that is built into provisioners. They ignore the version that a template asks
// for.
const Version = "2.19.0"

// Constraint is the version constraint that Rewrite writes.
const Constraint = "~> 2.0"

// Excludes reports whether a version constraint excludes the built-in provider. It ignores what is no constraint.
func Excludes(constraint string) bool {
	c, err := version.NewConstraint(constraint)
	return err == nil && !c.Check(version.Must(version.NewVersion(Version)))
}

// Kinds of blocks that had attributes which are gone. A data source's kind begins with "data.", a provider's with
// "provider.".
const (
	workspace = "data.coder_workspace"
	gitAuth   = "data.coder_git_auth"
	parameter = "data.coder_parameter"
	agent     = "coder_agent"
	app       = "coder_app"
	provider  = "provider.coder"
)

// Removal is something that the built-in provider lacks.
type Removal struct {
	Kind      string // of the block
	Attribute string // empty if the kind itself is gone
	Instead   string // a phrase that follows a colon
}

// String names what is gone and its replacement.
func (r Removal) String() string {
	what := r.Kind
	if r.Attribute != "" {
		what = r.Attribute + " of " + r.Kind
	}
	return fmt.Sprintf("%s is not in version %s of the provider coder, which runs here: %s", what, Version, r.Instead)
}

// owners maps the attributes of data.coder_workspace about its owner to those of data.coder_workspace_owner.
var owners = map[string]string{
	"owner": "name", "owner_id": "id", "owner_name": "full_name", "owner_email": "email", "owner_groups": "groups",
	"owner_oidc_access_token": "oidc_access_token", "owner_session_token": "session_token",
}

// others lists what is gone besides owners.
var others = []Removal{
	{gitAuth, "", `use data "coder_external_auth", with the same attributes`},
	{agent, "login_before_ready", `use startup_script_behavior = "blocking" for false, "non-blocking" for true`},
	{agent, "startup_script_timeout", "delete it, or move the script to a coder_script with a timeout"},
	{agent, "shutdown_script_timeout", "delete it, or move the script to a coder_script with a timeout"},
	{app, "name", "use display_name"},
	{app, "relative_path", "use subdomain, with the opposite value"},
	{parameter, "legacy_variable", "delete it: variables and parameters are independent"},
	{parameter, "legacy_variable_name", "delete it: variables and parameters are independent"},
	{provider, "feature_use_managed_variables", "delete it: it is always on"},
}

// slug is an attribute that became mandatory.
var slug = Removal{app, "slug",
	`each app needs a slug of its own, of a-z, 0-9 and single hyphens, such as slug = "code-server"`}

// NeedsSlug explains the error about an app without a slug.
func NeedsSlug() string { return "Since version 0.7 of the provider coder, " + slug.Instead }

// Find returns the removal of an attribute, or with an empty attribute of a kind.
func Find(kind, attribute string) (Removal, bool) {
	if to, ok := owners[attribute]; ok && kind == workspace {
		return Removal{workspace, attribute,
			`use data.coder_workspace_owner.me.` + to + `, and add: data "coder_workspace_owner" "me" {}`}, true
	}
	i := slices.IndexFunc(others, func(r Removal) bool { return r.Kind == kind && r.Attribute == attribute })
	if i < 0 {
		return Removal{}, false
	}
	return others[i], true
}

// All returns every removal.
func All() []Removal {
	all := slices.Clone(others)
	for attribute := range owners {
		r, _ := Find(workspace, attribute)
		all = append(all, r)
	}
	return all
}
