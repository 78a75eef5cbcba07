package complete

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// most bounds a list: users read no more on Tab, and the search has narrowed it to what is typed.
const most = 100

// workspaces are the caller's by name, and after "ada/" those of ada.
var workspaces = source{
	key: func(q question) string { return "workspaces " + workspaceQuery(q.word) },
	list: func(ctx context.Context, client *sdk.Client, q question) ([]string, error) {
		found, err := client.Workspaces(ctx, sdk.WorkspacesQuery{Q: workspaceQuery(q.word), Limit: most})
		owner, _, ok := strings.Cut(q.word, "/")
		return named(found.Workspaces, func(w sdk.Workspace) string {
			if ok {
				return owner + "/" + w.Name
			}
			return w.Name
		}), err
	},
}

func workspaceQuery(word string) string {
	owner, name, ok := strings.Cut(word, "/")
	if !ok {
		owner, name = sdk.Me, word
	}
	return strings.TrimSpace("owner:" + term(owner) + search(" name:", name))
}

var templates = source{
	key: func(question) string { return "templates" },
	list: func(ctx context.Context, client *sdk.Client, _ question) ([]string, error) {
		found, err := client.Templates(ctx, "", "")
		return named(found, func(t sdk.Template) string { return t.Name }), err
	},
}

var users = source{
	key: func(q question) string { return "users " + term(q.word) },
	list: func(ctx context.Context, client *sdk.Client, q question) ([]string, error) {
		found, err := client.Users(ctx, sdk.UsersQuery{Q: term(q.word), Limit: most})
		return named(found.Users, func(u sdk.User) string { return u.Username }), err
	},
}

var organizations = source{
	key: func(question) string { return "organizations" },
	list: func(ctx context.Context, client *sdk.Client, _ question) ([]string, error) {
		found, err := client.Organizations(ctx)
		return named(found, func(o sdk.Organization) string { return o.Name }), err
	},
}

var groups = source{
	key: func(q question) string { return "groups " + flag(q, "org") },
	list: func(ctx context.Context, client *sdk.Client, q question) ([]string, error) {
		found, err := client.Groups(ctx, sdk.GroupsQuery{Organization: flag(q, "org")})
		return named(found, func(g sdk.Group) string { return g.Name }), err
	},
}

// presets are those of the template that the line names.
var presets = source{
	key: func(q question) string { return "presets " + templateOf(q) },
	list: func(ctx context.Context, client *sdk.Client, q question) ([]string, error) {
		version, err := versionOf(ctx, client, q)
		if err != nil {
			return nil, err
		}
		found, err := client.TemplateVersionPresets(ctx, version)
		return append(named(found, func(p sdk.Preset) string { return p.Name }), "none"), err
	},
}

// parameters are those of the template or workspace that the line names.
var parameters = source{
	suffix: "=",
	key:    func(q question) string { return "parameters " + templateOf(q) },
	list: func(ctx context.Context, client *sdk.Client, q question) ([]string, error) {
		version, err := versionOf(ctx, client, q)
		if err != nil {
			return nil, err
		}
		found, err := client.TemplateVersionParameters(ctx, version)
		return named(found, func(p sdk.TemplateVersionParameter) string { return p.Name }), err
	},
}

// templateOf names what determines the parameters of a line: its --template, or its first argument, a workspace.
func templateOf(q question) string {
	if name := flag(q, "template"); name != "" {
		return fmt.Sprintf("of the template %q in %q", name, flag(q, "org"))
	}
	if len(q.args) > 0 {
		return fmt.Sprintf("of the workspace %q", q.args[0])
	}
	return ""
}

// versionOf returns the version of the template that determines the parameters of a line.
func versionOf(ctx context.Context, client *sdk.Client, q question) (uuid.UUID, error) {
	if name := flag(q, "template"); name != "" {
		org := organization.Of(flag(q, "org"))
		template, err := org.Template(ctx, client, name)
		return template.ActiveVersionID, err
	}
	if len(q.args) == 0 {
		return uuid.Nil, fmt.Errorf("the line names neither a template nor a workspace")
	}
	owner, name, ok := strings.Cut(q.args[0], "/")
	if !ok {
		owner, name = sdk.Me, q.args[0]
	}
	workspace, err := client.WorkspaceByName(ctx, owner, name)
	return workspace.TemplateActiveVersionID, err
}

// flag returns the value of a flag that the line sets, "" if it sets none.
func flag(q question, name string) string {
	if f := q.cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// search returns a search for names that contain what is typed, "" if nothing is.
func search(key, typed string) string {
	if typed = term(typed); typed != "" {
		return key + typed
	}
	return ""
}

// term returns what is typed as a term of the server's search language, "" if it is nothing that a name could contain.
func term(typed string) string {
	for _, c := range typed {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_.", c)) {
			return ""
		}
	}
	return typed
}
