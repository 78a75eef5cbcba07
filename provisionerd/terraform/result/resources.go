package result

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/printable"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// agentNamespace makes ids for scripts that are attributes of an agent and not resources of their own.
var agentNamespace = uuid.MustParse("8f5ab5cf-6b0a-4a08-9ff3-6f2c6a3d0b0e")

// DeriveResources turns resource instances into what users and agents see of a workspace. Agents belong to the resource
// that depends on them most directly; an agent that nothing depends on (yet) gets a resource of its own with the type
// coder_agent. The result is sorted and the same for the same nodes. Errors begin with the place in t, the template.
func DeriveResources(t *template.Source, nodes []Node) ([]*provisionerpb.Resource, error) {
	resources, _, err := deriveAll(t, nodes)
	return resources, err
}

// deriveAll returns the resources as DeriveResources does, and the addresses of what names an agent or resource that is
// not there.
func deriveAll(t *template.Source, nodes []Node) (resources []*provisionerpb.Resource, strays []string, err error) {
	d := deriver{t: t, nodes: nodes, ids: map[string]bool{}}
	for i, n := range nodes {
		if strings.HasPrefix(n.typ, "coder_") && n.typ != externalAgent {
			continue
		}
		var attrs struct {
			ID           any `json:"id"`
			InstanceType any `json:"instance_type"`
			MachineType  any `json:"machine_type"`
			Size         any `json:"size"`
		}
		// A provider may use these names for anything: what does not fit is not shown.
		_ = json.Unmarshal(n.attrs, &attrs)
		r := &provisionerpb.Resource{Name: n.name, Type: n.typ}
		switch n.typ {
		case "aws_instance", "aws_spot_instance_request":
			r.InstanceType = text(attrs.InstanceType)
		case "google_compute_instance":
			r.InstanceType = text(attrs.MachineType)
		case "azurerm_linux_virtual_machine", "azurerm_windows_virtual_machine":
			r.InstanceType = text(attrs.Size)
		}
		d.owners = append(d.owners, owner{node: &nodes[i], id: text(attrs.ID), resource: r})
	}
	if err := d.agents(); err != nil {
		return nil, nil, err
	}
	d.metadata()
	for _, n := range nodes {
		var of belonging
		if (belongsToAgent(n.typ) || n.typ == externalAgent || n.typ == devcontainer) &&
			json.Unmarshal(n.attrs, &of) == nil && of.AgentID != "" && !d.ids[of.AgentID] {
			d.strays = append(d.strays, n.address())
		}
	}
	for _, o := range d.owners {
		resources = append(resources, o.resource)
	}
	return append(resources, d.loose...), slices.Compact(slices.Sorted(slices.Values(d.strays))), nil
}

// externalAgent is the type of the resources that own the agents which users start by hand.
const externalAgent = "coder_external_agent"

// devcontainer is the type of the containers that an agent starts, each with an agent of its own.
const devcontainer = "coder_devcontainer"

type owner struct {
	node     *Node
	id       string
	resource *provisionerpb.Resource
}

type deriver struct {
	t      *template.Source
	nodes  []Node
	owners []owner
	loose  []*provisionerpb.Resource // for agents without an owner
	ids    map[string]bool           // of the agents
	strays []string                  // addresses of what names something that is not there
}

// belongsToAgent reports whether resources of a type belong to an agent.
func belongsToAgent(typ string) bool {
	return typ == "coder_app" || typ == "coder_script" || typ == "coder_env"
}

// agents makes the agents and gives each to its owner.
func (d *deriver) agents() error {
	names := map[string]string{}
	for i := range d.nodes {
		n := &d.nodes[i]
		if n.typ != "coder_agent" {
			continue
		}
		a, err := newAgent(n)
		if err != nil {
			return d.at(n, err)
		}
		a.Place = d.t.Place(n.address())
		if a.GetAuth() != "" && a.GetAuth() != "token" {
			a.InstanceId, a.InstanceAccount = instanceOf(d.nodes, n, printable.UUID(a.Id))
		}
		if err := d.admit(n, a, names); err != nil {
			return err
		}
		if err := d.devcontainers(n, a, names); err != nil {
			return err
		}
		if o := d.ownerOf(n, printable.UUID(a.Id)); o != nil {
			o.resource.Agents = append(o.resource.Agents, a)
			continue
		}
		d.loose = append(d.loose, &provisionerpb.Resource{Name: n.name, Type: n.typ, Agents: []*provisionerpb.Agent{a}})
	}
	return nil
}

// admit names an agent, of a coder_agent or a coder_devcontainer, and attaches what belongs to it.
func (d *deriver) admit(n *Node, a *provisionerpb.Agent, names map[string]string) error {
	if n.index != nil && len(indexText(n.index)) > 0 && d.count(n.address()) > 1 {
		a.Name += "-" + indexText(n.index)
	}
	if other, taken := names[strings.ToLower(a.Name)]; taken {
		return d.at(n,
			fmt.Errorf("the agents %s (%s) and %s have the same name: agents of one workspace need different names, "+
				"whatever module they are in",
				other, d.t.Place(other), n.address()))
	}
	names[strings.ToLower(a.Name)] = n.address()
	d.ids[printable.UUID(a.Id)] = true
	return d.attach(n, a)
}

// maxDevcontainers bounds the dev containers of one agent.
const maxDevcontainers = 16

// devcontainers adds the dev containers of an agent, and the agents that run in them.
func (d *deriver) devcontainers(parent *Node, a *provisionerpb.Agent, names map[string]string) error {
	for i := range d.nodes {
		n := &d.nodes[i]
		if n.typ != devcontainer || !belongs(n, parent.address(), printable.UUID(a.Id)) {
			continue
		}
		c, err := newDevcontainer(n, a)
		if err != nil {
			return d.at(n, err)
		}
		c.Agent.Place = d.t.Place(n.address())
		if err := d.admit(n, c.Agent, names); err != nil {
			return err
		}
		a.Devcontainers = append(a.Devcontainers, c)
	}
	if len(a.Devcontainers) > maxDevcontainers {
		return d.at(parent, fmt.Errorf("%s has %d dev containers, and an agent can have %d", parent.address(),
			len(a.Devcontainers), maxDevcontainers))
	}
	return nil
}

func (d *deriver) count(address string) (count int) {
	for _, n := range d.nodes {
		if n.address() == address {
			count++
		}
	}
	return count
}

// ownerOf returns the resource to which an agent belongs, or nil. If the agent has a coder_external_agent, it is that.
// Otherwise candidates are all resources that depend on the agent. The owner depends on no other candidate, and is the
// first such by address; among its instances, the one with the agent's index.
func (d *deriver) ownerOf(n *Node, id string) *owner {
	address := n.address()
	for i := range d.owners {
		if o := &d.owners[i]; o.node.typ == externalAgent && belongs(o.node, address, id) {
			return o
		}
	}
	candidates := map[string]bool{}
	for _, o := range d.owners {
		if o.node.typ != externalAgent && slices.Contains(o.node.deps, address) {
			candidates[o.node.address()] = true
		}
	}
	var best *owner
	for i := range d.owners {
		o := &d.owners[i]
		own := o.node.address()
		if !candidates[own] {
			continue
		}
		if slices.ContainsFunc(o.node.deps, func(dep string) bool { return dep != own && candidates[dep] }) {
			continue
		}
		if best == nil || best.node.address() == own && indexText(best.node.index) != indexText(n.index) &&
			indexText(o.node.index) == indexText(n.index) {
			best = o
		}
	}
	return best
}

// belonging is what all things that belong to an agent have.
type belonging struct {
	AgentID string `json:"agent_id"`
}

// belongs reports whether something belongs to the agent with an address and an id. In a plan the id is not known: what
// depends on a dev container then belongs to the agent in it, not to the one that starts it.
func belongs(n *Node, agent, id string) bool {
	var of belonging
	if json.Unmarshal(n.attrs, &of) != nil || of.AgentID == "" {
		inside := slices.ContainsFunc(n.deps, isDevcontainer)
		return slices.Contains(n.deps, agent) && (!inside || isDevcontainer(agent))
	}
	return of.AgentID == id
}

// isDevcontainer reports whether a resource's address is a dev container's.
func isDevcontainer(address string) bool {
	return strings.HasPrefix(address, devcontainer+".") || strings.Contains(address, "."+devcontainer+".")
}

// attach adds an agent's apps, scripts and variables, which are separate resources, to the agent.
func (d *deriver) attach(n *Node, a *provisionerpb.Agent) error {
	id := printable.UUID(a.Id)
	var envs []agentEnv
	for i := range d.nodes {
		m := &d.nodes[i]
		if !belongsToAgent(m.typ) {
			continue
		}
		if !belongs(m, n.address(), id) {
			continue
		}
		var err error
		switch m.typ {
		case "coder_app":
			err = addApp(m, a, d.t.Place(m.address()))
		case "coder_script":
			err = addScript(m, a)
		case "coder_env":
			e := agentEnv{place: d.t.Place(m.address())}
			err = json.Unmarshal(m.attrs, &e)
			envs = append(envs, e)
		}
		if err != nil {
			return d.at(m, fmt.Errorf("read %s: %w", m.address(), err))
		}
	}
	slices.SortStableFunc(a.Apps, func(x, y *provisionerpb.App) int {
		return cmp.Or(cmp.Compare(x.Order, y.Order), cmp.Compare(x.Slug, y.Slug))
	})
	return mergeEnv(a, envs)
}

// at puts the place of a node before an error about it.
func (d *deriver) at(n *Node, err error) error {
	return fmt.Errorf("%s: %w", d.t.Place(n.address()), err)
}

type agentEnv struct {
	place string
	Name  string `json:"name"`
	Value string `json:"value"`
	Merge string `json:"merge_strategy"`
}

// mergeEnv adds coder_env resources, in the order of their addresses, to the agent's own variables. Values that are
// appended or prepended to none are joined with the machine's value, unless one of them refers to that itself.
func mergeEnv(a *provisionerpb.Agent, envs []agentEnv) error {
	seen := map[string]string{} // places by name
	joined := map[string]bool{} // variables that begin with the machine's value
	separator := ":"            // of lists of folders, such as PATH
	if a.GetOs() == "windows" {
		separator = ";"
	}
	for _, e := range envs {
		if other, had := seen[e.Name]; had && e.Merge == "error" {
			return fmt.Errorf("%s: two coder_env resources define %s for the agent %s: the other is at %s", e.place,
				e.Name, a.Name, other)
		}
		seen[e.Name] = e.place
		if a.Env == nil {
			a.Env = map[string]string{}
		}
		old, had := a.Env[e.Name]
		joins := e.Merge == "append" || e.Merge == "prepend"
		switch {
		case joins && e.Value == "":
			continue // an empty element would be the current folder
		case joins && !had:
			old, joined[e.Name] = machineValue(e.Name), true
		case !joins:
			delete(joined, e.Name)
		}
		switch {
		case old == "" || !joins:
			a.Env[e.Name] = e.Value
		case e.Merge == "append":
			a.Env[e.Name] = old + separator + e.Value
		default:
			a.Env[e.Name] = e.Value + separator + old
		}
	}
	for name := range joined {
		parts := strings.Split(a.Env[name], separator)
		i := slices.Index(parts, machineValue(name))
		others := strings.Join(slices.Delete(parts, i, i+1), separator)
		if slices.Contains(references(others), name) {
			a.Env[name] = others
		}
	}
	return nil
}

// machineValue is how the value of a variable refers to the value that the machine gives it; the agent resolves it.
func machineValue(name string) string { return "${" + name + "}" }

var reference = lazyregexp.New(`\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))`)

// references returns the variables that a value refers to.
func references(value string) (names []string) {
	for _, m := range reference().FindAllStringSubmatch(value, -1) {
		names = append(names, m[1]+m[2])
	}
	return names
}

type metadataAttributes struct {
	ResourceID string `json:"resource_id"`
	Hide       bool   `json:"hide"`
	Icon       string `json:"icon"`
	DailyCost  int32  `json:"daily_cost"`
	Item       []struct {
		Key       string `json:"key"`
		Value     string `json:"value"`
		Sensitive bool   `json:"sensitive"`
		IsNull    bool   `json:"is_null"`
	} `json:"item"`
}

// metadata applies coder_metadata to the resources that they name.
func (d *deriver) metadata() {
	for i := range d.nodes {
		n := &d.nodes[i]
		if n.typ != "coder_metadata" {
			continue
		}
		var m metadataAttributes
		if err := json.Unmarshal(n.attrs, &m); err != nil {
			continue // unknown in a plan
		}
		r := d.metadataTarget(n, m.ResourceID)
		if r == nil {
			if m.ResourceID != "" {
				d.strays = append(d.strays, n.address())
			}
			continue
		}
		r.Hide = r.Hide || m.Hide
		r.Icon = cmp.Or(m.Icon, r.Icon)
		r.DailyCost = cmp.Or(m.DailyCost, r.DailyCost)
		for _, item := range m.Item {
			r.Metadata = append(r.Metadata, &provisionerpb.ResourceMetadata{
				Key: item.Key, Value: item.Value, Sensitive: item.Sensitive, IsNull: item.IsNull,
			})
		}
	}
}

// metadataTarget returns the resource with the id. If several have it, or the id is not known yet, it returns the one
// that the node depends on most directly.
func (d *deriver) metadataTarget(n *Node, id string) *provisionerpb.Resource {
	var byID, byDep []owner
	for _, o := range d.owners {
		if !slices.Contains(n.deps, o.node.address()) {
			if id != "" && o.id == id {
				byID = append(byID, o)
			}
			continue
		}
		if id != "" && o.id == id {
			return o.resource
		}
		byDep = append(byDep, o)
	}
	switch {
	case len(byID) > 0:
		return byID[0].resource
	case id != "" || len(byDep) == 0:
		return nil
	}
	// The nearest: no other dependency of the node depends on it.
	for _, o := range byDep {
		if !slices.ContainsFunc(byDep, func(p owner) bool { return slices.Contains(p.node.deps, o.node.address()) }) {
			return o.resource
		}
	}
	return byDep[0].resource
}

// errAgentID reports a state whose agent has no usable id.
var errAgentID = errors.New("the agent's id is not a UUID")

// ReadResources derives the resources of a raw state as DeriveResources does, or none if there is no state. strays are
// the addresses of what names an agent or resource that is not there.
func ReadResources(t *template.Source, text []byte) (resources []*provisionerpb.Resource, strays []string, err error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil, nil
	}
	s, err := ParseState(text)
	if err != nil {
		return nil, nil, err
	}
	return deriveAll(t, s.Nodes("managed"))
}
