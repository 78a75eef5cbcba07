package coderd_test

import (
	"archive/tar"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// probe is a request that does an action to an object of east.
type probe struct {
	method, path, body string // with {placeholders}
	// fresh writes an object for this request alone and returns its placeholders; nil means the standing ones.
	fresh func(w *cells, actor string) vars
	// marker makes it a list: the action is allowed if the answer contains the marker.
	marker string
	// inside sends it as members of east that also have a role of the deployment.
	inside bool
	// own marks requests that reach only the caller's own object, so that every caller is its owner.
	own bool
	// named marks requests that name objects by name, or that create one: there is no id to replace.
	named bool
	// hidden is the status that refuses an id in the body, instead of 404.
	hidden int
	// unavailable is the status of an allowed request that needs a running agent.
	unavailable int
	// of is the kind of object that the path names, if it is not the row's.
	of rbac.Resource
}

// cell is how a row of the permission table is tried.
type cell struct {
	probes  []probe
	without string // why there is no request
}

func tries(probes ...probe) cell { return cell{probes: probes} }

// The objects that fresh writes.
func freshWorkspace(w *cells, _ string) vars {
	return w.workspace(w.east, w.owner(), w.standing["open"], w.shared)
}

// freshPublic is a workspace with a public port.
func freshPublic(w *cells, _ string) vars {
	v := freshWorkspace(w, "")
	w.Exec(`INSERT INTO workspace_port_shares (workspace_id, agent_name, port, share_level, protocol) VALUES ($1, 'main', 8080, 'public', 'http')`, v["ws"])
	return v
}

func stoppedWorkspace(w *cells, _ string) vars {
	v := freshWorkspace(w, "")
	w.Exec(`UPDATE workspace_builds SET transition = 'stop' WHERE id = $1`, v["build"])
	return v
}

func runningBuild(w *cells, _ string) vars {
	v := freshWorkspace(w, "")
	w.Exec(`UPDATE provisioner_jobs SET status = 'pending', completed_at = NULL WHERE id = (SELECT job_id FROM workspace_builds WHERE id = $1)`, v["build"])
	return v
}

func freshTemplate(w *cells, _ string) vars {
	id, version := w.template(w.east, w.shared, w.file())
	return vars{"tpl": id, "version": version}
}

func freshVersion(w *cells, _ string) vars { return vars{"loose": w.version(w.east, "", w.file())} }

func ownFile(w *cells, actor string) vars {
	v := freshTemplate(w, actor)
	v["upload"] = w.fileOf(actor)
	return v
}

func freshGroup(w *cells, _ string) vars { return vars{"group": w.group(w.east)} }

func freshMember(w *cells, _ string) vars {
	name := w.next()
	w.join(w.east, name)
	return vars{"member": name}
}

func freshInvitation(w *cells, _ string) vars {
	id := uuid.NewString()
	w.Exec(`INSERT INTO organizations (id, name) VALUES ($1, $2)`, id, w.next())
	w.Exec(`INSERT INTO organization_invitations (organization_id, user_id, invited_by, expires_at) VALUES ($1, $2, $2, now() + interval '1 day')`, id, w.User(w.owner()))
	return vars{"inviting": id}
}

func freshUser(w *cells, actor string) vars {
	if actor == w.owner() {
		return vars{"target": w.standing["selfid"]}
	}
	return vars{"target": w.User(w.next()).String()}
}

func newcomer(w *cells, _ string) vars {
	name := w.next()
	w.User(name)
	return vars{"member": name}
}

func freshRole(w *cells, _ string) vars {
	name := w.next()
	w.Exec(`INSERT INTO organization_roles (organization_id, name) VALUES ($1, $2)`, w.east, name)
	return vars{"role": name}
}

func freshProvisionerKey(w *cells, _ string) vars {
	name := w.next()
	w.Exec(`INSERT INTO provisioner_keys (id, organization_id, name, secret_hash, created_by) VALUES ($1, $2, $3, $5, $4)`, uuid.New(), w.east, name, w.User(w.owner()), []byte(w.next()))
	return vars{"pkey": name}
}

func freshJob(w *cells, _ string) vars {
	return vars{"job": w.job(w.east, sdk.JobTemplateImport, sdk.JobPending, w.file())}
}

func freshPlan(w *cells, _ string) vars {
	v := freshWorkspace(w, "")
	v["plan"] = w.job(w.east, sdk.JobTemplateDryRun, sdk.JobPending, w.file())
	w.Exec(`INSERT INTO workspace_plans (job_id, workspace_id) VALUES ($1, $2)`, v["plan"], v["ws"])
	w.Exec(`UPDATE provisioner_jobs SET input = jsonb_build_object('workspace_id', $2::text, 'template_version_id', $3::text) WHERE id = $1`, v["plan"], v["ws"], w.standing["version"])
	return v
}

func freshSession(w *cells, _ string) vars {
	id, _, _ := strings.Cut(w.Session(w.owner()).Reveal(), "-")
	return vars{"key": id}
}

// asProgram makes the account one that does not sign in: no role creates tokens of others.
func asProgram(w *cells, _ string) vars {
	w.Exec(`UPDATE users SET login_type = 'none' WHERE id = $1`, w.User(w.owner()))
	return vars{}
}

func freshSecret(w *cells, _ string) vars {
	name := w.next()
	w.send(w.owner(), "POST", "/api/v2/users/me/secrets", fmt.Sprintf(`{"name": %q, "value": "x", "env_name": "V%s"}`, name, name))
	return vars{"secret": name}
}

func freshSSHKey(w *cells, _ string) vars { return vars{"sshkey": w.sshKeyOf(w.owner())} }

func freshDevice(w *cells, _ string) vars { return vars{"device": w.deviceOf(w.owner())} }

func freshConsent(w *cells, _ string) vars {
	w.Exec(`INSERT INTO template_consents (user_id, template_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`, w.User(w.owner()), uuid.MustParse(w.standing["tpl"]))
	return nil
}

const (
	v2       = "/api/v2/"
	theOrg   = v2 + "organizations/{east}"
	theUser  = v2 + "users/{selfid}"
	theWS    = v2 + "workspaces/{ws}"
	theBuild = v2 + "workspacebuilds/{build}"
	thePlan  = theWS + "/plan/{plan}"
	theTpl   = v2 + "templates/{tpl}"
	theVer   = v2 + "templateversions/{version}"
	theGroup = v2 + "groups/{group}"
	theAgent = v2 + "workspaceagents/{agent}"
)

// cellRoutes has an entry for each row of the permission table.
var cellRoutes = map[rbac.Power]cell{
	{Action: rbac.Create, Resource: rbac.APIKey}: tries(probe{method: "POST", path: theUser + "/keys/tokens", body: `{}`, fresh: asProgram, of: rbac.User}),
	{Action: rbac.Read, Resource: rbac.APIKey}:   tries(probe{method: "GET", path: theUser + "/keys/{key}", of: rbac.User}, probe{method: "GET", path: theUser + "/keys/tokens", of: rbac.User}),
	{Action: rbac.Delete, Resource: rbac.APIKey}: tries(
		probe{method: "DELETE", path: theUser + "/keys/{key}", fresh: freshSession, of: rbac.User},
		probe{method: "PUT", path: theUser + "/keys/{key}/expire", fresh: freshSession, of: rbac.User}),
	{Action: rbac.Read, Resource: rbac.SSHKey}:   tries(probe{method: "GET", path: theUser + "/gitsshkey", of: rbac.User}),
	{Action: rbac.Update, Resource: rbac.SSHKey}: tries(probe{method: "PUT", path: theUser + "/gitsshkey", of: rbac.User}),

	{Action: rbac.Read, Resource: rbac.ExternalAuth}:   tries(probe{method: "GET", path: v2 + "external-auth", own: true}, probe{method: "GET", path: v2 + "external-auth/github", own: true}),
	{Action: rbac.Update, Resource: rbac.ExternalAuth}: {without: "a provider's answer to the caller's own login, which coderd/extauth tests; no path names another user"},
	{Action: rbac.Delete, Resource: rbac.ExternalAuth}: {without: "removes the caller's own login, which coderd/extauth tests; no path names another user"},

	{Action: rbac.Create, Resource: rbac.UserSecret}: tries(probe{method: "POST", path: theUser + "/secrets", body: `{"name": "{n}", "value": "x", "env_name": "S{n}"}`, of: rbac.User}),
	{Action: rbac.Read, Resource: rbac.UserSecret}:   tries(probe{method: "GET", path: theUser + "/secrets", of: rbac.User}, probe{method: "GET", path: theUser + "/secrets/standing", of: rbac.User}),
	{Action: rbac.Update, Resource: rbac.UserSecret}: tries(probe{method: "PATCH", path: theUser + "/secrets/standing", body: `{"description": "{n}"}`, of: rbac.User}),
	{Action: rbac.Delete, Resource: rbac.UserSecret}: tries(probe{method: "DELETE", path: theUser + "/secrets/{secret}", fresh: freshSecret, of: rbac.User}),

	{Action: rbac.Create, Resource: rbac.UserSSHKey}: tries(probe{method: "POST", path: theUser + "/ssh-keys", body: `{"name": "{n}", "public_key": "{public}"}`, of: rbac.User}),
	{Action: rbac.Read, Resource: rbac.UserSSHKey}:   tries(probe{method: "GET", path: theUser + "/ssh-keys", of: rbac.User}),
	{Action: rbac.Update, Resource: rbac.UserSSHKey}: tries(probe{method: "PATCH", path: theUser + "/ssh-keys/{sshkey}", body: `{"regions": []}`, fresh: freshSSHKey, of: rbac.User}),
	{Action: rbac.Delete, Resource: rbac.UserSSHKey}: tries(probe{method: "DELETE", path: theUser + "/ssh-keys/{sshkey}", fresh: freshSSHKey, of: rbac.User}),

	{Action: rbac.Create, Resource: rbac.UserDevice}: tries(probe{method: "POST", path: theUser + "/devices", body: `{"name": "{n}", "public_key": "{wgkey}"}`, of: rbac.User}),
	{Action: rbac.Read, Resource: rbac.UserDevice}:   tries(probe{method: "GET", path: theUser + "/devices", of: rbac.User}),
	{Action: rbac.Update, Resource: rbac.UserDevice}: tries(probe{method: "PATCH", path: theUser + "/devices/{device}", body: `{"name": "{n}"}`, fresh: freshDevice, of: rbac.User}),
	{Action: rbac.Delete, Resource: rbac.UserDevice}: tries(probe{method: "DELETE", path: theUser + "/devices/{device}", fresh: freshDevice, of: rbac.User}),

	{Action: rbac.Read, Resource: rbac.TemplateConsent}:   tries(probe{method: "GET", path: theUser + "/template-consents", of: rbac.User}),
	{Action: rbac.Delete, Resource: rbac.TemplateConsent}: tries(probe{method: "DELETE", path: theUser + "/template-consents/{tpl}", fresh: freshConsent, of: rbac.User}),

	{Action: rbac.Create, Resource: rbac.User}: tries(probe{method: "POST", path: v2 + "users", body: `{"username": "{n}", "email": "{n}@example.com", "login_type": "none"}`, named: true}),
	{Action: rbac.Read, Resource: rbac.User}: tries(probe{method: "GET", path: theUser}, probe{method: "GET", path: theUser + "/roles"},
		probe{method: "GET", path: theUser + "/notifications/preferences"},
		probe{method: "GET", path: theUser + "/login-type", of: rbac.User}, probe{method: "GET", path: theUser + "/quiet-hours", of: rbac.User},
		probe{method: "GET", path: theUser + "/connection-types", of: rbac.User}, probe{method: "GET", path: theUser + "/preferences", of: rbac.User},
		probe{method: "GET", path: theUser + "/appearance", of: rbac.User},
		probe{method: "GET", path: v2 + "users?limit=0", marker: "{selfid}"}),
	{Action: rbac.Update, Resource: rbac.User}: tries(probe{method: "PUT", path: theUser + "/profile", body: `{"username": "{self}", "name": "{n}"}`},
		probe{method: "PUT", path: theUser + "/appearance", body: `{"theme_preference": "dark"}`},
		probe{method: "PUT", path: theUser + "/preferences", body: `{"workspace_columns": ["status"]}`},
		probe{method: "PUT", path: theUser + "/notifications/preferences", body: `{"template_disabled_map": {"{event}": true}}`}),
	{Action: rbac.Delete, Resource: rbac.User}: tries(probe{method: "DELETE", path: v2 + "users/{target}", fresh: freshUser}),
	{Action: rbac.Manage, Resource: rbac.User}: tries(
		probe{method: "PUT", path: v2 + "users/{target}/status/suspend", fresh: freshUser}, probe{method: "PUT", path: v2 + "users/{target}/roles", body: `{"roles": []}`, fresh: freshUser}),

	{Action: rbac.Read, Resource: rbac.Notification}:   tries(probe{method: "GET", path: v2 + "notifications/inbox", own: true}),
	{Action: rbac.Update, Resource: rbac.Notification}: tries(probe{method: "PUT", path: v2 + "notifications/inbox/mark-all-as-read", own: true}),

	{Action: rbac.Create, Resource: rbac.Organization}: tries(probe{method: "POST", path: v2 + "organizations", body: `{"name": "{n}"}`, named: true}),
	{Action: rbac.Read, Resource: rbac.Organization}:   tries(probe{method: "GET", path: theOrg, named: true}, probe{method: "GET", path: theOrg + "/settings/workspace-sharing", named: true}, probe{method: "GET", path: v2 + "organizations", marker: `"east"`}),
	{Action: rbac.Update, Resource: rbac.Organization}: tries(probe{method: "PATCH", path: theOrg, body: `{"description": "{n}"}`, named: true},
		probe{method: "GET", path: theOrg + "/settings/idpsync/groups", named: true}, probe{method: "PATCH", path: theOrg + "/settings/idpsync/roles", body: `{"field": "", "mapping": {}}`, named: true},
		probe{method: "PATCH", path: theOrg + "/settings/workspace-sharing", body: `{"sharing_disabled": false}`, named: true}),
	{Action: rbac.Delete, Resource: rbac.Organization}: tries(probe{method: "DELETE", path: theOrg, named: true}), // refused with 409: it is in use

	{Action: rbac.Read, Resource: rbac.OrganizationInvitation}: tries(probe{method: "GET", path: theUser + "/invitations", of: rbac.User}),
	{Action: rbac.Update, Resource: rbac.OrganizationInvitation}: tries(
		probe{method: "POST", path: theUser + "/invitations/{inviting}/accept", fresh: freshInvitation, of: rbac.User},
		probe{method: "POST", path: theUser + "/invitations/{inviting}/decline", fresh: freshInvitation, of: rbac.User}),

	{Action: rbac.Create, Resource: rbac.OrganizationMember}: tries(probe{method: "POST", path: theOrg + "/members/{member}", fresh: newcomer, named: true}),
	{Action: rbac.Read, Resource: rbac.OrganizationMember}: tries(probe{method: "GET", path: theOrg + "/members/{self}", named: true},
		probe{method: "GET", path: theOrg + "/members", marker: "{selfid}"}, probe{method: "GET", path: theOrg + "/paginated-members?limit=100", marker: "{selfid}"}),
	{Action: rbac.Update, Resource: rbac.OrganizationMember}: tries(probe{method: "PUT", path: theOrg + "/members/{member}/roles", body: `{"roles": []}`, fresh: freshMember, named: true}),
	{Action: rbac.Delete, Resource: rbac.OrganizationMember}: tries(probe{method: "DELETE", path: theOrg + "/members/{member}", fresh: freshMember, named: true}),

	{Action: rbac.Create, Resource: rbac.OrganizationRole}: tries(probe{method: "POST", path: theOrg + "/members/roles", body: `{"name": "{n}"}`, named: true}),
	{Action: rbac.Read, Resource: rbac.OrganizationRole}:   tries(probe{method: "GET", path: theOrg + "/members/roles", marker: `"standing"`}),
	{Action: rbac.Update, Resource: rbac.OrganizationRole}: tries(probe{method: "PUT", path: theOrg + "/members/roles", body: `{"name": "{role}"}`, fresh: freshRole, named: true}),
	{Action: rbac.Delete, Resource: rbac.OrganizationRole}: tries(probe{method: "DELETE", path: theOrg + "/members/roles/{role}", fresh: freshRole, named: true}),

	{Action: rbac.Create, Resource: rbac.Group}: tries(probe{method: "POST", path: theOrg + "/groups", body: `{"name": "{n}"}`, named: true}),
	{Action: rbac.Read, Resource: rbac.Group}: tries(probe{method: "GET", path: theGroup}, probe{method: "GET", path: theGroup + "/members"},
		probe{method: "GET", path: theOrg + "/groups", marker: "{group}"}, probe{method: "GET", path: v2 + "groups", marker: "{group}"}),
	{Action: rbac.Update, Resource: rbac.Group}: tries(probe{method: "PATCH", path: theGroup, body: `{"display_name": "{n}"}`}),
	{Action: rbac.Delete, Resource: rbac.Group}: tries(probe{method: "DELETE", path: theGroup, fresh: freshGroup}),

	{Action: rbac.Create, Resource: rbac.File}: tries(probe{method: "POST", path: v2 + "files", body: archive, named: true}),
	{Action: rbac.Read, Resource: rbac.File}:   tries(probe{method: "GET", path: v2 + "files/{file}"}),

	{Action: rbac.Create, Resource: rbac.Template}: tries(probe{method: "POST", path: theOrg + "/templates", body: `{"name": "{n}", "template_version_id": "{loose}"}`, fresh: freshVersion, named: true}),
	{Action: rbac.Read, Resource: rbac.Template}: tries(probe{method: "GET", path: theTpl}, probe{method: "GET", path: theTpl + "/versions"}, probe{method: "GET", path: v2 + "templates", marker: "{tpl}"},
		probe{method: "GET", path: theOrg + "/templates", marker: "{tpl}"}),
	{Action: rbac.Use, Resource: rbac.Template}: tries(
		probe{method: "POST", path: theOrg + "/members/me/workspaces", body: `{"name": "{n}", "template_id": "{tpl}"}`, inside: true, hidden: 400, of: rbac.Template},
		probe{method: "POST", path: theVer + "/dry-run", body: `{"workspace_name": "{n}"}`, of: rbac.TemplateVersion}),
	{Action: rbac.Update, Resource: rbac.Template}: tries(probe{method: "PATCH", path: theTpl, body: `{"display_name": "{n}"}`},
		probe{method: "PATCH", path: theTpl + "/versions", body: `{"id": "{version}"}`}),
	{Action: rbac.Delete, Resource: rbac.Template}: tries(probe{method: "DELETE", path: theTpl, fresh: freshTemplate}),
	{Action: rbac.Share, Resource: rbac.Template}: tries(probe{method: "PATCH", path: theTpl + "/acl", body: `{"user_perms": {}}`},
		probe{method: "GET", path: theTpl + "/acl/available"}),

	{Action: rbac.Create, Resource: rbac.TemplateVersion}: tries(probe{method: "POST", path: theOrg + "/templateversions",
		body: `{"template_id": "{tpl}", "file_id": "{upload}", "storage_method": "file", "provisioner": "terraform"}`, fresh: ownFile, hidden: 400, of: rbac.Template}),
	{Action: rbac.Read, Resource: rbac.TemplateVersion}: tries(probe{method: "GET", path: theVer}, probe{method: "GET", path: theVer + "/rich-parameters"},
		probe{method: "GET", path: theVer + "/resources"}, probe{method: "GET", path: theVer + "/logs"}, probe{method: "GET", path: theVer + "/presets"}, probe{method: "GET", path: theVer + "/external-auth"}),
	{Action: rbac.Update, Resource: rbac.TemplateVersion}: tries(probe{method: "PATCH", path: theVer, body: `{"message": "{n}"}`}, probe{method: "GET", path: theVer + "/variables"}),
	{Action: rbac.Delete, Resource: rbac.TemplateVersion}: {without: "no route deletes a version: it goes with its template"},

	{Action: rbac.Create, Resource: rbac.Workspace}: tries(
		probe{method: "POST", path: theOrg + "/members/{self}/workspaces", body: `{"name": "{n}", "template_id": "{open}"}`, named: true, hidden: 400},
		probe{method: "POST", path: theUser + "/workspaces", body: `{"name": "{n}", "template_id": "{open}"}`, named: true, hidden: 400}),
	{Action: rbac.Read, Resource: rbac.Workspace}: tries(probe{method: "GET", path: theWS}, probe{method: "GET", path: v2 + "users/{self}/workspace/{wsname}", named: true},
		probe{method: "GET", path: v2 + "workspaces", marker: "{ws}"}, probe{method: "GET", path: theWS + "/port-share"}, probe{method: "GET", path: theWS + "/resolve-autostart"},
		probe{method: "PUT", path: theWS + "/favorite"}),
	{Action: rbac.Update, Resource: rbac.Workspace}: tries(probe{method: "PUT", path: theWS + "/autostart", body: `{"schedule": null}`}, probe{method: "PUT", path: theWS + "/ttl", body: `{"ttl_ms": null}`},
		probe{method: "PATCH", path: theWS, body: `{"name": "{n}"}`, fresh: freshWorkspace}, probe{method: "PUT", path: theWS + "/autoupdates", body: `{"automatic_updates": "never"}`}),
	{Action: rbac.Delete, Resource: rbac.Workspace}:  tries(probe{method: "POST", path: theWS + "/builds", body: `{"transition": "delete"}`, fresh: freshWorkspace}),
	{Action: rbac.Connect, Resource: rbac.Workspace}: tries(probe{method: "POST", path: theWS + "/usage"}),
	{Action: rbac.OpenApp, Resource: rbac.Workspace}: tries(probe{method: "GET", path: "/@{self}/{wsname}.main/apps/code/", named: true, unavailable: 503}),
	{Action: rbac.Share, Resource: rbac.Workspace}: tries(probe{method: "PATCH", path: theWS + "/acl", body: `{"user_roles": {"{memberid}": "use"}}`, fresh: freshWorkspace},
		probe{method: "PATCH", path: theWS + "/acl", body: `{"group_roles": {"{group}": "admin"}}`, fresh: freshWorkspace},
		probe{method: "POST", path: theWS + "/port-share", body: `{"agent_name": "main", "port": 8080, "share_level": "organization"}`, fresh: freshWorkspace}),
	{Action: rbac.Withdraw, Resource: rbac.Workspace}: tries(probe{method: "PATCH", path: theWS + "/acl", body: `{"user_roles": {}}`}, probe{method: "GET", path: theWS + "/acl"},
		probe{method: "DELETE", path: theWS + "/acl", fresh: freshWorkspace}, probe{method: "POST", path: theWS + "/port-share", body: `{"agent_name": "main", "port": 8080, "share_level": "owner"}`},
		probe{method: "POST", path: theWS + "/port-share", body: `{"agent_name": "main", "port": 8080, "share_level": "organization"}`, fresh: freshPublic},
		probe{method: "DELETE", path: theWS + "/port-share", body: `{"agent_name": "main", "port": 8080}`, fresh: freshPublic}),
	{Action: rbac.Transfer, Resource: rbac.Workspace}: tries(probe{method: "POST", path: theWS + "/transfer", body: `{"owner": "{member}", "name": "{n}"}`, fresh: freshWorkspace},
		probe{method: "POST", path: theWS + "/transfer", body: `{"owner": "{member}", "name": "{n}"}`, fresh: stoppedWorkspace}),

	{Action: rbac.Create, Resource: rbac.WorkspaceBuild}: tries(probe{method: "POST", path: theWS + "/builds", body: `{"transition": "stop"}`, fresh: freshWorkspace},
		probe{method: "POST", path: theWS + "/restart", body: `{}`, fresh: freshWorkspace}, probe{method: "POST", path: theWS + "/plan", body: `{}`, fresh: freshWorkspace},
		probe{method: "PATCH", path: thePlan + "/cancel", fresh: freshPlan}),
	{Action: rbac.Read, Resource: rbac.WorkspaceBuild}: tries(probe{method: "GET", path: theBuild}, probe{method: "GET", path: theWS + "/builds", marker: "{build}"},
		probe{method: "GET", path: theBuild + "/parameters"}, probe{method: "GET", path: theBuild + "/resources"}, probe{method: "GET", path: theBuild + "/logs"}, probe{method: "GET", path: theBuild + "/timings"}, probe{method: "GET", path: theWS + "/timings", of: rbac.Workspace},
		probe{method: "GET", path: thePlan, fresh: freshPlan}, probe{method: "GET", path: thePlan + "/logs", fresh: freshPlan}),
	{Action: rbac.Update, Resource: rbac.WorkspaceBuild}: tries(probe{method: "PATCH", path: theBuild + "/cancel", fresh: runningBuild}),
	{Action: rbac.Read, Resource: rbac.WorkspaceState}:   tries(probe{method: "GET", path: theBuild + "/state", of: rbac.WorkspaceBuild}),
	{Action: rbac.Update, Resource: rbac.WorkspaceState}: tries(probe{method: "PUT", path: theBuild + "/state", body: `{"state": "eyJ2ZXJzaW9uIjo0LCJzZXJpYWwiOjksImxpbmVhZ2UiOiJsIn0=", "force": true}`, fresh: freshWorkspace, of: rbac.WorkspaceBuild}),

	{Action: rbac.Read, Resource: rbac.Agent}:    tries(probe{method: "GET", path: theAgent}, probe{method: "GET", path: theAgent + "/logs"}),
	{Action: rbac.Update, Resource: rbac.Agent}:  tries(probe{method: "GET", path: theWS + "/external-agent/main/credentials", of: rbac.Workspace}),
	{Action: rbac.Connect, Resource: rbac.Agent}: tries(probe{method: "GET", path: theAgent + "/connection"}, probe{method: "GET", path: theAgent + "/listening-ports", unavailable: 503}),

	{Action: rbac.Create, Resource: rbac.ProvisionerDaemon}: {without: "a provisioner joins over the mesh: TestProvisionersOfOrganizations and the tests of coderd/mesh"},
	{Action: rbac.Read, Resource: rbac.ProvisionerDaemon}:   tries(probe{method: "GET", path: theOrg + "/provisionerdaemons", marker: `"daemon"`}),
	{Action: rbac.Delete, Resource: rbac.ProvisionerDaemon}: {without: "no route removes a provisioner: its row goes when it is gone for long"},
	{Action: rbac.Create, Resource: rbac.ProvisionerKey}:    tries(probe{method: "POST", path: theOrg + "/provisionerkeys", body: `{"name": "{n}"}`, named: true}),
	{Action: rbac.Read, Resource: rbac.ProvisionerKey}: tries(probe{method: "GET", path: theOrg + "/provisionerkeys", marker: `"standing"`},
		probe{method: "GET", path: theOrg + "/provisionerkeys/daemons", marker: `"standing"`}),
	{Action: rbac.Delete, Resource: rbac.ProvisionerKey}: tries(probe{method: "DELETE", path: theOrg + "/provisionerkeys/{pkey}", fresh: freshProvisionerKey, named: true}),
	{Action: rbac.Read, Resource: rbac.ProvisionerJob}: tries(probe{method: "GET", path: theOrg + "/provisionerjobs/{job}"},
		probe{method: "GET", path: theOrg + "/provisionerjobs?limit=100", marker: "{job}"}),
	{Action: rbac.Update, Resource: rbac.ProvisionerJob}: tries(probe{method: "PATCH", path: theOrg + "/provisionerjobs/{job}/cancel", fresh: freshJob}),

	{Action: rbac.Read, Resource: rbac.AuditLog}:      tries(probe{method: "GET", path: v2 + "audit?limit=100", marker: `"audited"`}, probe{method: "GET", path: v2 + "audit/export", marker: `"audited"`}),
	{Action: rbac.Read, Resource: rbac.ConnectionLog}: tries(probe{method: "GET", path: v2 + "connectionlog?limit=100", marker: `"connected"`}, probe{method: "GET", path: v2 + "connectionlog/export", marker: `"connected"`}),
	{Action: rbac.Read, Resource: rbac.Deployment}: tries(probe{method: "GET", path: v2 + "debug/health", named: true}, probe{method: "GET", path: v2 + "debug/health/settings", named: true}, probe{method: "GET", path: v2 + "deployment/config", named: true},
		probe{method: "GET", path: v2 + "deployment/stats", named: true}, probe{method: "GET", path: v2 + "deployment/overview", named: true}, probe{method: "GET", path: v2 + "prebuilds/settings", named: true}),
	{Action: rbac.Update, Resource: rbac.Deployment}: tries(probe{method: "GET", path: v2 + "settings/idpsync/organization", named: true},
		probe{method: "PATCH", path: v2 + "settings/idpsync/organization", body: `{"field": "", "mapping": {}}`, named: true},
		probe{method: "PUT", path: v2 + "appearance", body: `{}`, named: true},
		probe{method: "PUT", path: v2 + "debug/health/settings", body: `{"dismissed_healthchecks": []}`, named: true},
		probe{method: "PATCH", path: v2 + "debug/health/settings", body: `{}`, named: true},
		probe{method: "PUT", path: v2 + "prebuilds/settings", body: `{"reconciliation_paused": false}`, named: true},
		probe{method: "PUT", path: v2 + "notifications/settings", body: `{"notifier_paused": false}`, named: true},
		probe{method: "GET", path: v2 + "webhooks", named: true}),
	{Action: rbac.Connect, Resource: rbac.Mesh}: {without: "every user joins the mesh as themselves, over a WebSocket: TestScopesOnTheMesh and TestCoordinateRefuses"},
	{Action: rbac.Read, Resource: rbac.Mesh}:    {without: "GET /api/v2/mesh/peers needs connected peers: TestWhoSeesWhichPeers in coderd/mesh"},
}

// archive is a tar archive with one file.
var archive = func() string {
	var b strings.Builder
	tw := tar.NewWriter(&b)
	tw.WriteHeader(&tar.Header{Name: "main.tf", Mode: 0o644, Size: 1})
	io.WriteString(tw, "#")
	tw.Close()
	return b.String()
}()

// lists checks that each list contains exactly those objects that the actor may read one by one.
func (w *cells) lists(t *testing.T) {
	west := w.User(outsider)
	wtpl, wver := w.template(w.west, rbac.Sharing{w.west: rbac.LevelUse}, w.file())
	wws := w.workspace(w.west, outsider, wtpl, rbac.Sharing{})
	lone := w.workspace(w.east, w.named(rbac.RelationMember), w.standing["open"], rbac.Sharing{})
	wgroup, wjob := w.group(w.west), w.job(w.west, sdk.JobTemplateImport, sdk.JobSucceeded, w.file())
	var users []string
	for _, a := range w.actors {
		users = append(users, w.User(a.name).String())
	}
	orgs := []string{w.east.String(), w.west.String(), w.Org.String()}
	groups := []string{w.standing["group"], wgroup, w.east.String(), w.west.String()}
	for _, l := range []struct {
		list, one string
		ids       []string
	}{
		{v2 + "users?limit=0", v2 + "users/%s", users},
		{v2 + "organizations", v2 + "organizations/%s", orgs},
		{v2 + "users/{selfid}/organizations", v2 + "users/{selfid}/organizations/%s", orgs},
		{v2 + "users/" + west.String() + "/organizations", v2 + "users/" + west.String() + "/organizations/%s", orgs},
		{theOrg + "/members", theOrg + "/members/%s", users},
		{v2 + "organizations/west/members", v2 + "organizations/west/members/%s", users},
		{v2 + "groups", v2 + "groups/%s", groups},
		{theOrg + "/groups", v2 + "groups/%s", []string{w.standing["group"], w.east.String()}},
		{v2 + "organizations/west/groups", v2 + "groups/%s", []string{wgroup, w.west.String()}},
		{v2 + "templates", v2 + "templates/%s", []string{w.standing["tpl"], w.standing["open"], wtpl}},
		{theOrg + "/templates", v2 + "templates/%s", []string{w.standing["tpl"], w.standing["open"]}},
		{v2 + "organizations/west/templates", v2 + "templates/%s", []string{wtpl}},
		{v2 + "templates/{open}/versions", v2 + "templateversions/%s", []string{w.standing["openversion"]}},
		{v2 + "templates/" + wtpl + "/versions", v2 + "templateversions/%s", []string{wver}},
		{v2 + "workspaces?limit=0", v2 + "workspaces/%s", []string{w.standing["ws"], lone["ws"], wws["ws"]}},
		{theWS + "/builds", v2 + "workspacebuilds/%s", []string{w.standing["build"]}},
		{v2 + "workspaces/" + lone["ws"] + "/builds", v2 + "workspacebuilds/%s", []string{lone["build"]}},
		{theOrg + "/provisionerjobs?limit=100", theOrg + "/provisionerjobs/%s", []string{w.standing["job"]}},
		{v2 + "organizations/west/provisionerjobs?limit=100", v2 + "organizations/west/provisionerjobs/%s", []string{wjob}},
		{theUser + "/secrets", theUser + "/secrets/%s", []string{"standing"}},
	} {
		shown := 0
		for _, a := range w.actors {
			status, body := w.send(a.name, "GET", w.standing.fill(l.list), "")
			if status >= 300 && !denies(status) {
				t.Errorf("%s: GET %s: %d %s", a.name, l.list, status, body)
			}
			for _, id := range l.ids {
				one, text := w.send(a.name, "GET", w.standing.fill(fmt.Sprintf(l.one, id)), "")
				listed := status == 200 && strings.Contains(body, `"`+id+`"`)
				if listed {
					shown++
				}
				if listed != (one == 200) {
					t.Errorf("%s: GET %s lists %s: %t, but GET %s answers %d %.150s", a.name, l.list, id, listed, l.one, one, text)
				}
			}
		}
		if shown == 0 || shown == len(l.ids)*len(w.actors) {
			t.Errorf("GET %s shows %d of %d objects: it distinguishes no actors", l.list, shown, len(l.ids)*len(w.actors))
		}
	}
}
