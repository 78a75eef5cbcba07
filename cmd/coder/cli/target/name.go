package target

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/nearest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// Name is how a user or an IDE names a workspace and one of its agents.
type Name struct {
	Owner string // sdk.Me if not given
	Name  string
	Agent string // "" if not given
}

func (n Name) String() string {
	text := n.Name
	if n.Owner != sdk.Me && n.Owner != "" {
		text = n.Owner + "/" + text
	}
	if n.Agent != "" {
		text += "." + n.Agent
	}
	return text
}

var (
	separator = lazyregexp.New(`/|--|\.`)
	validPart = lazyregexp.New(`^[a-zA-Z0-9]+([_-][a-zA-Z0-9]+)*$`)
)

// ParseName parses "workspace", "workspace.agent", "owner/workspace" and "owner--workspace"; the last two may end in
// ".agent" or "--agent". Three names separated by dots are a host name, "agent.workspace.owner".
func ParseName(text string) (Name, error) {
	bad := func(why string) (Name, error) {
		return Name{}, exit.Try(fault.New(fault.Invalid, "%q is not the name of a workspace: %s", text, why),
			"Use workspace, owner/workspace or owner/workspace.agent. List yours with: coder list")
	}
	parts := separator().Split(text, -1)
	marks := separator().FindAllString(text, -1)
	for _, p := range parts {
		if !validPart().MatchString(p) {
			return bad("names consist of letters, digits and single hyphens")
		}
	}
	switch {
	case len(parts) == 1:
		return Name{Owner: sdk.Me, Name: parts[0]}, nil
	case len(parts) == 2 && marks[0] == ".":
		return Name{Owner: sdk.Me, Name: parts[0], Agent: parts[1]}, nil
	case len(parts) == 2:
		return Name{Owner: parts[0], Name: parts[1]}, nil
	case len(parts) == 3 && marks[0] == "." && marks[1] == ".":
		return Name{Owner: parts[2], Name: parts[1], Agent: parts[0]}, nil
	case len(parts) == 3 && marks[0] != "." && marks[1] != "/":
		return Name{Owner: parts[0], Name: parts[1], Agent: parts[2]}, nil
	}
	return bad("it has too many parts")
}

// TrimHost strips the prefix or the suffix from a host name that OpenSSH passed. Empty ones are ignored.
func TrimHost(host, prefix, suffix string) string {
	if prefix != "" {
		if rest, ok := strings.CutPrefix(host, prefix); ok {
			return rest
		}
	}
	if suffix != "" {
		if rest, ok := strings.CutSuffix(host, "."+strings.TrimPrefix(suffix, ".")); ok {
			return rest
		}
	}
	return host
}

// Find returns the workspace with the given name or id. It makes one request.
func Find(ctx context.Context, client *sdk.Client, text string) (sdk.Workspace, Name, error) {
	if id, err := uuid.Parse(text); err == nil {
		ws, err := client.Workspace(ctx, id)
		return ws, Name{Owner: ws.OwnerName, Name: ws.Name}, err
	}
	name, err := ParseName(text)
	if err != nil {
		return sdk.Workspace{}, name, err
	}
	ws, err := client.WorkspaceByName(ctx, name.Owner, name.Name)
	if fault.CodeOf(err) == fault.NotFound && err != nil {
		missing := fault.New(fault.NotFound, "workspace %s not found, or you do not have access to it", Name{
			Owner: name.Owner, Name: name.Name,
		})
		if near := nearestWorkspace(ctx, client, name); near != "" {
			return ws, name, exit.Try(missing, "Did you mean %s? List workspaces with: coder list", near)
		}
		return ws, name, exit.Try(missing, "coder list")
	}
	return ws, name, err
}

// nearestWorkspace returns the owner's workspace that is spelled almost like the name, "" if there is none or that
// cannot be found out.
func nearestWorkspace(ctx context.Context, client *sdk.Client, name Name) string {
	list, err := client.Workspaces(ctx, sdk.WorkspacesQuery{Q: "owner:" + name.Owner, Limit: 100})
	if err != nil {
		return ""
	}
	var names []string
	for _, ws := range list.Workspaces {
		names = append(names, ws.Name)
	}
	return nearest.To(name.Name, names)
}

// ChooseAgent returns the named agent of the workspace's latest build, or without a name its only agent outside dev
// containers.
func ChooseAgent(ws sdk.Workspace, name string) (sdk.WorkspaceAgent, error) {
	agents := ws.LatestBuild.Agents()
	if len(agents) == 0 {
		return sdk.WorkspaceAgent{}, exit.Try(fault.New(fault.NotFound, "the workspace %s has no agent", ws.Name).
			WithDetail("its template declares no coder_agent that exists while the workspace is %s",
				ws.LatestBuild.Status), "coder show %s", shell.Word(ws.Name))
	}
	var names []string
	for _, agent := range agents {
		if agent.Name == name {
			return agent, nil
		}
		names = append(names, agent.Name)
	}
	if outer := ws.LatestBuild.OuterAgents(); name == "" && len(outer) == 1 {
		return outer[0], nil
	}
	slices.Sort(names)
	if name == "" {
		return sdk.WorkspaceAgent{}, exit.Try(fault.New(fault.Invalid, "the workspace %s has several agents: %s",
			ws.Name, strings.Join(names, ", ")),
			"coder ssh %s", shell.Word(ws.Name+"."+names[0]))
	}
	return sdk.WorkspaceAgent{}, exit.Try(fault.New(fault.NotFound, "the workspace %s has no agent %q; it has %s",
		ws.Name, name, strings.Join(names, ", ")),
		"coder ssh %s", shell.Word(ws.Name+"."+names[0]))
}
