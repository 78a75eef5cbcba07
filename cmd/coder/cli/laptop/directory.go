package laptop

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/hostname"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// Agent is an agent that the user may connect to now.
type Agent struct {
	ID        uuid.UUID  `json:"id"`
	Workspace uuid.UUID  `json:"workspace_id"`
	Host      string     `json:"host"` // the full name: main.dev.ada.coder
	Names     []string   `json:"names"`
	Address   netip.Addr `json:"address"`

	owner, name, agent string
	mine, child        bool // the user's own workspace; an agent of a dev container
}

// Directory has the agents that the user may connect to. It is safe for concurrent use.
type Directory struct {
	user uuid.UUID

	mu     sync.RWMutex // guards the fields below
	agents map[netip.Addr]Agent
}

// NewDirectory returns an empty directory of a user.
func NewDirectory(user uuid.UUID) *Directory {
	return &Directory{user: user, agents: map[netip.Addr]Agent{}}
}

// Set replaces what the directory has, and returns the agents that are no longer there.
func (d *Directory) Set(workspaces []sdk.Workspace) (gone []Agent) {
	agents := map[netip.Addr]Agent{}
	for _, ws := range workspaces {
		if !ws.Permissions.Connect || !runs(ws) {
			continue
		}
		for _, a := range ws.LatestBuild.Agents() {
			agents[tailnet.Addr(a.ID)] = Agent{
				ID: a.ID, Workspace: ws.ID, Host: hostname.Of(ws.OwnerName, ws.Name, a.Name),
				Address: tailnet.Addr(a.ID),
				owner:   ws.OwnerName, name: ws.Name, agent: a.Name, mine: ws.OwnerID == d.user, child: a.ParentID != nil,
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for addr, a := range d.agents {
		if _, ok := agents[addr]; !ok {
			gone = append(gone, a)
		}
	}
	d.agents = agents
	return gone
}

// runs reports whether a workspace may have agents: it was started, or is being started.
func runs(ws sdk.Workspace) bool {
	b := ws.LatestBuild
	return ws.Running() || b.Transition == sdk.TransitionStart && b.Job.Status == sdk.JobRunning
}

// At returns the agent that has an address.
func (d *Directory) At(addr netip.Addr) (Agent, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	a, ok := d.agents[addr]
	return a, ok
}

// All returns the agents, by name, with their names.
func (d *Directory) All() []Agent {
	d.mu.RLock()
	defer d.mu.RUnlock()
	all := make([]Agent, 0, len(d.agents))
	for _, a := range d.agents {
		a.Names = d.names(a)
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b Agent) int { return cmp.Compare(a.Host, b.Host) })
	return all
}

// names returns the names of an agent, the shortest first. d.mu must be held.
func (d *Directory) names(a Agent) []string {
	var names []string
	for _, short := range []string{a.name, a.owner + "/" + a.name} {
		if found, ok := d.find(short); ok && found.ID == a.ID {
			host := a.name
			if strings.Contains(short, "/") {
				host += "." + a.owner
			}
			names = append(names, host+"."+hostname.Domain)
		}
	}
	return append(names, a.Host)
}

// find returns the one agent that [owner/]workspace[.agent] means, as the server's devices do: case does not matter, a
// name without an owner is the user's own, and one without an agent is the only one that is none of a dev container.
// d.mu must be held.
func (d *Directory) find(name string) (found Agent, ok bool) {
	owner, rest, named := strings.Cut(name, "/")
	if !named {
		owner, rest = "", name
	}
	mine := owner == "" || strings.EqualFold(owner, sdk.Me)
	workspace, agent, _ := strings.Cut(rest, ".")
	for _, a := range d.agents {
		if mine != a.mine && mine || !mine && !strings.EqualFold(owner, a.owner) ||
			!strings.EqualFold(workspace, a.name) {
			continue
		}
		if agent == "" && a.child || agent != "" && !strings.EqualFold(agent, a.agent) {
			continue
		}
		if ok {
			return Agent{}, false // several
		}
		found, ok = a, true
	}
	return found, ok
}

// errNone is the answer for all names and addresses that mean nothing to the user, whether or not they mean something
// to others.
func errNone() error {
	return fault.New(fault.NotFound, "No workspace that you may connect to has the name.")
}

// Find returns the address of a name: see meshdns.Directory.
func (d *Directory) Find(_ context.Context, name string) (netip.Addr, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	a, ok := d.find(name)
	if !ok {
		return netip.Addr{}, errNone()
	}
	return a.Address, nil
}

// Host returns the name of an address: see meshdns.Directory.
func (d *Directory) Host(_ context.Context, addr netip.Addr) (string, error) {
	a, ok := d.At(addr)
	if !ok {
		return "", errNone()
	}
	return a.Host, nil
}
