package result

import (
	"encoding/json"
	"slices"
	"strings"
)

// agentInstance is the type of the resources that say which machine of a cloud is an agent's.
const agentInstance = "coder_agent_instance"

// machines are the resources that are machines of clouds, with the attribute that has the machine's id, and where its
// account is.
var machines = map[string]struct {
	id      string
	account func(machineAttributes) string
}{
	"aws_instance":                    {"id", accountOfARN},
	"aws_spot_instance_request":       {"spot_instance_id", accountOfARN},
	"google_compute_instance":         {"instance_id", func(m machineAttributes) string { return text(m.Project) }},
	"azurerm_linux_virtual_machine":   {"virtual_machine_id", subscriptionOf},
	"azurerm_windows_virtual_machine": {"virtual_machine_id", subscriptionOf},
}

// machineAttributes are what the types of machines have. A provider may use these names for anything: what does not fit
// is not used.
type machineAttributes struct {
	ID      any `json:"id"`
	ARN     any `json:"arn"`
	Project any `json:"project"`
}

// accountOfARN returns the account of arn:aws:ec2:REGION:ACCOUNT:instance/ID.
func accountOfARN(m machineAttributes) string {
	parts := strings.SplitN(text(m.ARN), ":", 6)
	if len(parts) < 6 {
		return ""
	}
	return parts[4]
}

// subscriptionOf returns the subscription of /subscriptions/SUBSCRIPTION/resourceGroups/….
func subscriptionOf(m machineAttributes) string {
	rest, found := strings.CutPrefix(text(m.ID), "/subscriptions/")
	if !found {
		return ""
	}
	subscription, _, _ := strings.Cut(rest, "/")
	return strings.ToLower(subscription)
}

// machine returns the id of a machine and its account, "" where they are not known.
func machine(n *Node) (id, account string) {
	kind, known := machines[n.typ]
	if !known {
		return "", ""
	}
	var attrs machineAttributes
	var all map[string]any
	_ = json.Unmarshal(n.attrs, &attrs)
	_ = json.Unmarshal(n.attrs, &all)
	return instanceID(text(all[kind.id])), kind.account(attrs)
}

// instanceID returns an id as clouds write it in their documents.
func instanceID(id string) string { return strings.ToLower(strings.TrimSpace(id)) }

// instanceOf returns which machine of a cloud may prove to be an agent, and its account: that of its
// coder_agent_instance, or the only machine that depends on the agent. Among several with an index, it is the one with
// the agent's. id is the agent's.
func instanceOf(nodes []Node, agent *Node, id string) (instance, account string) {
	accounts := map[string]string{}
	var found, indexed []*Node
	for i := range nodes {
		m := &nodes[i]
		own, account := machine(m)
		if own == "" {
			continue
		}
		accounts[own] = account
		if slices.Contains(m.deps, agent.address()) {
			found = append(found, m)
			if indexText(m.index) == indexText(agent.index) {
				indexed = append(indexed, m)
			}
		}
	}
	for i := range nodes {
		m := &nodes[i]
		var of struct {
			AgentID    string `json:"agent_id"`
			InstanceID string `json:"instance_id"`
		}
		if m.typ == agentInstance && json.Unmarshal(m.attrs, &of) == nil && of.AgentID != "" && of.AgentID == id {
			instance = instanceID(of.InstanceID)
			return instance, accounts[instance]
		}
	}
	if len(found) > 1 {
		found = indexed
	}
	if len(found) != 1 {
		return "", ""
	}
	return machine(found[0])
}
