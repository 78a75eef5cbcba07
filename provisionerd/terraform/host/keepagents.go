package host

import (
	"context"

	"github.com/hashicorp/terraform-plugin-sdk/v2/diag"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
)

// keepAgents makes the provider keep the agents of a prebuilt workspace while a user claims it. Each agent keeps its
// id, its token and its start script, so that what runs it is not made anew and the agent stays connected. Attributes
// that depend on the owner, such as env, change in place, and so do its apps, scripts and variables, and what
// coder_metadata shows. The provider itself would replace the agent then; its variable for the token of a running
// agent, CODER_RUNNING_WORKSPACE_AGENT_TOKEN_*, has one value for all agents, so it is not set.
func keepAgents(p *schema.Provider) {
	agent := p.ResourcesMap["coder_agent"]
	read := agent.ReadWithoutTimeout
	agent.ReadWithoutTimeout = func(ctx context.Context, d *schema.ResourceData, meta any) diag.Diagnostics {
		kept := map[string]any{"token": d.Get("token"), "init_script": d.Get("init_script")}
		found := read(ctx, d, meta) // makes a new token
		for name, value := range kept {
			if value == "" {
				continue
			}
			if err := d.Set(name, value); err != nil {
				found = append(found, diag.FromErr(err)...)
			}
		}
		return found
	}
	// The state is all there is of these.
	for _, name := range []string{"coder_agent", "coder_app", "coder_script", "coder_env", "coder_metadata"} {
		p.ResourcesMap[name].UpdateContext = func(context.Context, *schema.ResourceData, any) diag.Diagnostics { return nil }
		changeInPlace(p.ResourcesMap[name].Schema)
	}
}

// changeInPlace makes no attribute replace its resource.
func changeInPlace(attributes map[string]*schema.Schema) {
	for _, a := range attributes {
		a.ForceNew = false
		if nested, ok := a.Elem.(*schema.Resource); ok {
			changeInPlace(nested.Schema)
		}
	}
}

// markOwner makes the provider declare everything about the workspace's owner as sensitive, and the tokens of agents as
// not.
func markOwner(p *schema.Provider) {
	for _, a := range p.DataSourcesMap["coder_workspace_owner"].Schema {
		a.Sensitive = true
	}
	p.DataSourcesMap["coder_workspace"].Schema["name"].Sensitive = true
	p.ResourcesMap["coder_agent"].Schema["token"].Sensitive = false
}
