package result

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestInstanceOf finds the machines of agents in states of all clouds.
func TestInstanceOf(t *testing.T) {
	t.Parallel()
	const subscription = "8d10da13-8125-4ba9-a717-bf7490507b3d"
	agent := Node{typ: "coder_agent", name: "main", attrs: json.RawMessage(`{"id":"` + mainAgent + `","auth":"aws-instance-identity"}`)}
	node := func(typ, attrs string, deps ...string) Node {
		return Node{typ: typ, name: "dev", attrs: json.RawMessage(attrs), deps: deps}
	}
	indexed := func(index float64, n Node) Node {
		n.index = index
		return n
	}
	const uses = "coder_agent.main"
	aws := node("aws_instance", `{"id":"i-0a","arn":"arn:aws:ec2:eu-central-1:123456789012:instance/i-0a"}`, uses)
	second := node("aws_instance", `{"id":"i-0b","arn":"arn:aws:ec2:eu-central-1:123456789012:instance/i-0b"}`, uses)
	for name, tc := range map[string]struct {
		agent    Node
		nodes    []Node
		instance string
		account  string
	}{
		"AWS":      {agent, []Node{aws}, "i-0a", "123456789012"},
		"AWS spot": {agent, []Node{node("aws_spot_instance_request", `{"id":"sir-1","spot_instance_id":"i-0c","arn":"arn:aws-cn:ec2:cn-north-1:210987654321:spot-instances-request/sir-1"}`, uses)}, "i-0c", "210987654321"},
		"Google":   {agent, []Node{node("google_compute_instance", `{"id":"projects/p/zones/z/instances/dev","instance_id":"1529866","project":"p"}`, uses)}, "1529866", "p"},
		"Azure": {agent, []Node{node("azurerm_linux_virtual_machine", `{"id":"/subscriptions/`+subscription+`/resourceGroups/g","virtual_machine_id":"02AAB8A4-74EF-476E-8182-F6D2BA4166A6"}`, uses)},
			"02aab8a4-74ef-476e-8182-f6d2ba4166a6", subscription},
		"Azure, Windows":             {agent, []Node{node("azurerm_windows_virtual_machine", `{"id":"x","virtual_machine_id":"02aab8a4"}`, uses)}, "02aab8a4", ""},
		"not the agent's":            {agent, []Node{node("aws_instance", `{"id":"i-0a"}`)}, "", ""},
		"two":                        {agent, []Node{aws, second}, "", ""},
		"two with indexes":           {indexed(1, agent), []Node{indexed(0, aws), indexed(1, second)}, "i-0b", "123456789012"},
		"no machine":                 {agent, []Node{node("null_resource", `{"id":"i-0a"}`, uses)}, "", ""},
		"an id that is no text":      {agent, []Node{node("aws_instance", `{"id":["i-0a"],"arn":7}`, uses)}, "", ""},
		"said, of a group":           {agent, []Node{node("coder_agent_instance", `{"agent_id":"`+mainAgent+`","instance_id":" I-0F "}`)}, "i-0f", ""},
		"said, of two":               {agent, []Node{aws, second, node("coder_agent_instance", `{"agent_id":"`+mainAgent+`","instance_id":"i-0b"}`)}, "i-0b", "123456789012"},
		"said of another agent":      {agent, []Node{node("coder_agent_instance", `{"agent_id":"`+otherAgent+`","instance_id":"i-0b"}`)}, "", ""},
		"said of no agent, a plan's": {agent, []Node{node("coder_agent_instance", `{"instance_id":"i-0b"}`, uses)}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resources, err := DeriveResources(nil, append([]Node{tc.agent}, tc.nodes...))
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(resources, func(r *provisionerpb.Resource) bool { return len(r.GetAgents()) == 1 })
			if i < 0 {
				t.Fatalf("no resource has the agent: %v", resources)
			}
			if a := resources[i].GetAgents()[0]; a.GetInstanceId() != tc.instance || a.GetInstanceAccount() != tc.account {
				t.Errorf("got %q of %q, want %q of %q", a.GetInstanceId(), a.GetInstanceAccount(), tc.instance, tc.account)
			}
		})
	}
	agent.attrs = json.RawMessage(`{"id":"` + mainAgent + `","auth":"token"}`)
	resources, err := DeriveResources(nil, []Node{agent, aws})
	if err != nil || resources[0].GetAgents()[0].GetInstanceId() != "" {
		t.Errorf("an agent with a token: %v, %v", resources, err)
	}
}
