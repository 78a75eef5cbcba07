package coderd_test

import (
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
)

// terraformResources are the requests that the provider sends for each of its resources, in order.
var terraformResources = []struct {
	resource string
	steps    []step
}{
	{"coderd_user", []step{
		{method: "POST", path: "users", body: `{"email":"tess@example.com","username":"tess","name":"Tess","password":"Correct-Horse-9-Battery","login_type":"password","user_status":null,"organization_ids":["{org}"]}`,
			status: 201, want: `{"username":"tess","name":"Tess","email":"tess@example.com","status":"active","login_type":"password","organization_ids":["{org}"],"roles":[]}`, keep: "tess"},
		{method: "PUT", path: "users/{tess}/roles", body: `{"roles":["template-admin","auditor","user-admin"]}`, status: 200},
		{method: "GET", path: "users/{tess}", status: 200, want: `{"id":"{tess}","username":"tess","name":"Tess","email":"tess@example.com","login_type":"password"}`},
		{method: "PUT", path: "users/{tess}/profile", body: `{"username":"tessa","name":"Tessa"}`, status: 200, want: `{"username":"tessa","name":"Tessa"}`},
		{method: "PUT", path: "users/{tess}/password", body: `{"old_password":"","password":"Another-Horse-9-Battery"}`, status: 204},
		{method: "PUT", path: "users/{tess}/status/suspend", status: 200, want: `{"status":"suspended"}`},
		{method: "PUT", path: "users/{tess}/status/activate", status: 200, want: `{"status":"active"}`},
		{method: "PUT", path: "users/{tess}/roles", body: `{"roles":["nonsense"]}`, status: 400},
		{method: "PUT", path: "users/{tess}/roles", body: `{"roles":["owner"]}`, status: 403, as: "ann"},
		{method: "GET", path: "users/tessa", status: 200, want: `{"id":"{tess}"}`},
		{method: "DELETE", path: "users/{tess}", status: 204},
		{method: "GET", path: "users/{tess}", status: 404},
	}},
	{"coderd_user without a password", []step{
		{method: "POST", path: "users", body: `{"email":"bot@example.com","username":"bot","name":"","password":"","login_type":"none","user_status":"active","organization_ids":["{org}"]}`,
			status: 201, want: `{"login_type":"none","status":"active"}`, keep: "bot"},
		{method: "DELETE", path: "users/{bot}", status: 204},
	}},
	{"coderd_group", []step{
		{method: "POST", path: "organizations/{org}/groups", body: `{"name":"devs","display_name":"Developers","avatar_url":"","quota_allowance":10}`,
			status: 201, want: `{"name":"devs","display_name":"Developers","avatar_url":"","quota_allowance":10,"organization_id":"{org}","source":"user","members":[],"total_member_count":0}`, keep: "devs"},
		{method: "PATCH", path: "groups/{devs}", body: `{"add_users":["{ann}"],"remove_users":null,"name":"","display_name":null,"avatar_url":null,"quota_allowance":null}`,
			status: 200, want: `{"name":"devs","total_member_count":1}`},
		{method: "GET", path: "groups/{devs}", status: 200, want: `{"id":"{devs}","quota_allowance":10,"display_name":"Developers"}`},
		{method: "PATCH", path: "groups/{devs}", body: `{"add_users":[],"remove_users":["{ann}"],"name":"builders","display_name":"","avatar_url":"/emojis/1f680.png","quota_allowance":0}`,
			status: 200, want: `{"name":"builders","display_name":"","avatar_url":"/emojis/1f680.png","quota_allowance":0,"members":[]}`},
		{method: "PATCH", path: "groups/{devs}", body: `{"add_users":["{nobody}"]}`, status: 400},
		{method: "PATCH", path: "groups/{devs}", body: `{"add_users":["{ann}"]}`, status: 403, as: "ann"},
		{method: "GET", path: "organizations/{org}/groups/builders", status: 200, want: `{"id":"{devs}"}`},
		{method: "GET", path: "organizations/{org}/groups/Everyone", status: 200, want: `{"id":"{org}"}`},
		{method: "POST", path: "organizations/{org}/groups", body: `{"name":"builders","display_name":"","avatar_url":"","quota_allowance":0}`, status: 409},
		{method: "DELETE", path: "groups/{devs}", status: 200},
		{method: "GET", path: "groups/{devs}", status: 404},
	}},
	{"coderd_template acl", []step{
		{method: "POST", path: "organizations/{org}/groups", body: `{"name":"authors","display_name":"","avatar_url":"","quota_allowance":0}`, status: 201, keep: "authors"},
		{method: "GET", path: "templates/{template}/acl", status: 200, want: `{"users":[]}`},
		{method: "PATCH", path: "templates/{template}/acl", body: `{"user_perms":{"{ann}":"admin"},"group_perms":{"{org}":"","{authors}":"use"}}`, status: 200},
		{method: "PATCH", path: "templates/{template}/acl", body: `{"user_perms":{"{ann}":"emperor"}}`, status: 400},
		{method: "PATCH", path: "templates/{template}/acl", body: `{"user_perms":{"{olga}":"admin"}}`, status: 404, as: "bob"},
		{method: "GET", path: "templates/{template}", status: 404, as: "bob"},
		{method: "PATCH", path: "templates/{template}/acl", body: `{"user_perms":{"{ann}":""},"group_perms":{"{authors}":"","{org}":"use"}}`, status: 200},
		{method: "GET", path: "templates/{template}/acl", status: 200, want: `{"users":[]}`},
		{method: "GET", path: "templates/{template}", status: 200, as: "bob"},
		{method: "DELETE", path: "groups/{authors}", status: 200},
	}},
	{"coderd_template", []step{
		{method: "POST", path: "organizations/{org}/templates", body: `{"name":"made","display_name":"Made","description":"","icon":"","template_version_id":"{v1}","default_ttl_ms":28800000,"activity_bump_ms":7200000,` +
			`"autostop_requirement":{"days_of_week":["sunday"],"weeks":1},"autostart_requirement":{"days_of_week":["monday","tuesday"]},"allow_user_cancel_workspace_jobs":true,"allow_user_autostart":true,` +
			`"allow_user_autostop":true,"failure_ttl_ms":86400000,"dormant_ttl_ms":604800000,"delete_ttl_ms":0,"disable_everyone_group_access":true,"require_active_version":true,"max_port_share_level":"owner","template_use_classic_parameter_flow":null,"cors_behavior":null}`,
			status: 201, keep: "made", want: `{"name":"made","active_version_id":"{v1}","failure_ttl_ms":86400000,"time_til_dormant_ms":604800000,"activity_bump_ms":7200000,"require_active_version":true}`},
		{method: "GET", path: "templates/{made}", status: 200, want: `{"autostop_requirement":{"days_of_week":["sunday"],"weeks":1},"autostart_requirement":{"days_of_week":["monday","tuesday"]},"default_ttl_ms":28800000,"cors_behavior":"simple"}`},
		{method: "GET", path: "templates/{made}", status: 404, as: "bob"},
		{method: "GET", path: "organizations/{org}/templates/made", status: 200, want: `{"id":"{made}"}`},
		{method: "PATCH", path: "templateversions/{v1}", body: `{"name":"first","message":"made by Terraform"}`, status: 200, want: `{"name":"first","message":"made by Terraform"}`},
		{method: "PATCH", path: "templates/{made}", body: `{"name":"made2","display_name":"","description":"Text","icon":"","default_ttl_ms":0,"activity_bump_ms":3600000,"autostop_requirement":{"days_of_week":[],"weeks":1},` +
			`"autostart_requirement":{"days_of_week":["monday","tuesday","wednesday","thursday","friday","saturday","sunday"]},"allow_user_autostart":false,"allow_user_autostop":true,"allow_user_cancel_workspace_jobs":true,"failure_ttl_ms":0,` +
			`"time_til_dormant_ms":0,"time_til_dormant_autodelete_ms":0,"update_workspace_last_used_at":false,"update_workspace_dormant_at":false,"require_active_version":false,"deprecation_message":"Use another","disable_everyone_group_access":true,"max_port_share_level":"authenticated"}`,
			status: 200, want: `{"name":"made2","description":"Text","failure_ttl_ms":0,"time_til_dormant_ms":0,"deprecated":true,"deprecation_message":"Use another","allow_user_autostart":false}`},
		{method: "PATCH", path: "templates/{made}", body: `{"failure_ttl_ms":-5}`, status: 400},
		{method: "PATCH", path: "templates/{made}", body: `{"name":"stolen"}`, status: 404, as: "bob"},
		{method: "GET", path: "templates/{made}/versions?include_archived=false&after_id={nobody}&limit=0&offset=0", status: 200},
		{method: "DELETE", path: "templates/{made}", status: 200},
		{method: "GET", path: "templates/{made}", status: 404},
	}},
	{"coderd_provisioner_key", []step{
		{method: "POST", path: "organizations/{org}/provisionerkeys", body: `{"name":"ci","tags":{"site":"lab"}}`, status: 201},
		{method: "POST", path: "organizations/{org}/provisionerkeys", body: `{"name":"ci","tags":{}}`, status: 409},
		{method: "POST", path: "organizations/{org}/provisionerkeys", body: `{"name":"mine","tags":{}}`, status: 403, as: "ann"},
		{method: "GET", path: "organizations/{org}/provisionerkeys/", status: 200},
		{method: "DELETE", path: "organizations/{org}/provisionerkeys/ci", status: 403, as: "ann"},
		{method: "DELETE", path: "organizations/{org}/provisionerkeys/ci", status: 204},
		{method: "DELETE", path: "organizations/{org}/provisionerkeys/ci", status: 404},
	}},
	{"coderd_workspace_proxy", []step{
		{method: "POST", path: "workspaceproxies", body: `{"name":"eu","display_name":"Europe","icon":"/emojis/1f1ea-1f1fa.png"}`, status: 201, want: `{"proxy":{"name":"eu","display_name":"Europe"}}`},
		{method: "POST", path: "workspaceproxies", body: `{"name":"eu","display_name":"","icon":""}`, status: 409},
		{method: "POST", path: "workspaceproxies", body: `{"name":"mine","display_name":"","icon":""}`, status: 403, as: "ann"},
		{method: "GET", path: "workspaceproxies/eu", status: 200, want: `{"name":"eu"}`, keep: "eu"},
		{method: "PATCH", path: "workspaceproxies/{eu}", body: `{"id":"{eu}","name":"eu2","display_name":"EU","icon":"","regenerate_token":false}`, status: 200, want: `{"proxy":{"name":"eu2","display_name":"EU"},"proxy_token":""}`},
		{method: "DELETE", path: "workspaceproxies/{eu}", status: 403, as: "ann"},
		{method: "DELETE", path: "workspaceproxies/{eu}", status: 200},
		{method: "GET", path: "workspaceproxies/{eu}", status: 404},
	}},
	{"coderd_organization", []step{
		{method: "GET", path: "organizations/default", status: 200, want: `{"id":"{org}","is_default":true}`},
		{method: "GET", path: "organizations/{org}/members/", status: 200},
		{method: "POST", path: "organizations", body: `{"name":"lab","display_name":"The lab","description":"Where we try","icon":""}`,
			status: 201, want: `{"name":"lab","display_name":"The lab","description":"Where we try","icon":"","is_default":false}`, keep: "lab"},
		{method: "GET", path: "organizations/lab", status: 200, want: `{"id":"{lab}"}`},
		{method: "PATCH", path: "organizations/{lab}", body: `{"name":"laboratory","display_name":"The laboratory","description":"","icon":"/emojis/1f9ea.png"}`,
			status: 200, want: `{"name":"laboratory","display_name":"The laboratory","description":"","icon":"/emojis/1f9ea.png"}`},
		{method: "POST", path: "organizations/{lab}/members/{ann}", status: 200, want: `{"user_id":"{ann}","organization_id":"{lab}"}`},
		{method: "GET", path: "organizations/{lab}/members", status: 200},
		{method: "POST", path: "organizations", body: `{"name":"laboratory","display_name":"","description":"","icon":""}`, status: 409},
		{method: "DELETE", path: "organizations/{lab}", status: 403, as: "ann"},
		{method: "GET", path: "organizations/{lab}", status: 404, as: "bob"},
		{method: "DELETE", path: "organizations/{lab}/members/{ann}", status: 204},
		{method: "DELETE", path: "organizations/{lab}", status: 200},
		{method: "GET", path: "organizations/{lab}", status: 404},
		{method: "DELETE", path: "organizations/{org}", status: 409},
	}},
}

// TestTerraformProvider sends the requests that terraform-provider-coderd makes for users, groups, templates and access to them, provisioner keys, workspace
// proxies and organizations: through creation, a second plan, a change and the removal. Paths, bodies and fields are the provider's, with the zero
// values that Go's encoder writes.
func TestTerraformProvider(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	template := s.Template("process", nil).ID.String()
	known := map[string]string{
		"v1": s.Version(nil, nil).ID.String(), "org": s.Org.String(), "template": template, "ann": s.User("ann").String(), "olga": s.User("olga").String(), "nobody": "00000000-0000-0000-0000-000000000000",
	}
	for _, c := range terraformResources {
		t.Run(c.resource, func(t *testing.T) {
			replay(t, s, known, c.steps)
		})
	}
}
