package organizations

import (
	"slices"

	"github.com/codermesh/codermesh/v2/coderd/rbac"
)

// means is a list of powers.
type means = []rbac.Power

func power(action rbac.Action, resources ...rbac.Resource) (out means) {
	for _, r := range resources {
		out = append(out, rbac.Power{Action: action, Resource: r})
	}
	return out
}

// words are the clients' words for what custom roles can contain: kind of object, action, and the powers that it means.
// It is the one place that relates them to the permission table.
var words = map[string]map[string]means{
	"template": {
		"create": power(rbac.Create, rbac.Template, rbac.TemplateVersion),
		"read":   power(rbac.Read, rbac.Template, rbac.TemplateVersion),
		"update": append(power(rbac.Update, rbac.Template, rbac.TemplateVersion), power(rbac.Create, rbac.TemplateVersion)...),
		"delete": power(rbac.Delete, rbac.Template, rbac.TemplateVersion),
		"use":    power(rbac.Use, rbac.Template),
		"share":  power(rbac.Share, rbac.Template),
	},
	"workspace": {
		"create":              power(rbac.Create, rbac.Workspace),
		"read":                power(rbac.Read, rbac.Workspace, rbac.WorkspaceBuild, rbac.Agent),
		"update":              power(rbac.Update, rbac.Workspace, rbac.WorkspaceBuild),
		"delete":              power(rbac.Delete, rbac.Workspace),
		"start":               power(rbac.Create, rbac.WorkspaceBuild),
		"stop":                power(rbac.Create, rbac.WorkspaceBuild),
		"share":               power(rbac.Share, rbac.Workspace),
		"withdraw":            power(rbac.Withdraw, rbac.Workspace),
		"transfer":            power(rbac.Transfer, rbac.Workspace),
		"ssh":                 power(rbac.Connect, rbac.Workspace),
		"application_connect": power(rbac.OpenApp, rbac.Workspace),
	},
	"provisioner_daemon": {
		"create": power(rbac.Create, rbac.ProvisionerDaemon, rbac.ProvisionerKey),
		"read":   power(rbac.Read, rbac.ProvisionerDaemon, rbac.ProvisionerKey),
		"delete": power(rbac.Delete, rbac.ProvisionerDaemon, rbac.ProvisionerKey),
	},
	"provisioner_jobs": {
		"read":   power(rbac.Read, rbac.ProvisionerJob),
		"update": power(rbac.Update, rbac.ProvisionerJob),
	},
	"group": {
		"create": power(rbac.Create, rbac.Group),
		"read":   power(rbac.Read, rbac.Group),
		"update": power(rbac.Update, rbac.Group),
		"delete": power(rbac.Delete, rbac.Group),
	},
	"group_member": {
		"read": power(rbac.Read, rbac.Group),
	},
	"organization": {
		"read":   power(rbac.Read, rbac.Organization),
		"update": power(rbac.Update, rbac.Organization),
		"delete": power(rbac.Delete, rbac.Organization),
	},
	"organization_member": {
		"create": power(rbac.Create, rbac.OrganizationMember),
		"read":   power(rbac.Read, rbac.OrganizationMember),
		"update": power(rbac.Update, rbac.OrganizationMember),
		"delete": power(rbac.Delete, rbac.OrganizationMember),
	},
	"audit_log": {
		"read": power(rbac.Read, rbac.AuditLog),
	},
	"connection_log": {
		"read": power(rbac.Read, rbac.ConnectionLog),
	},
	"assign_org_role": {
		"assign":   power(rbac.Update, rbac.OrganizationMember),
		"unassign": power(rbac.Update, rbac.OrganizationMember),
		"create":   power(rbac.Create, rbac.OrganizationRole),
		"read":     power(rbac.Read, rbac.OrganizationRole),
		"update":   power(rbac.Update, rbac.OrganizationRole),
		"delete":   power(rbac.Delete, rbac.OrganizationRole),
	},
}

// private reports whether a word means what only ownership and sharing allow. No custom role can contain it.
func private(m means) bool { return slices.ContainsFunc(m, rbac.Power.Private) }

// siteWords are further words that authcheck understands.
var siteWords = map[string]map[string]means{
	"user": {
		"create":          power(rbac.Create, rbac.User),
		"read":            power(rbac.Read, rbac.User),
		"read_personal":   power(rbac.Read, rbac.User),
		"update":          power(rbac.Manage, rbac.User),
		"update_personal": power(rbac.Update, rbac.User),
		"delete":          power(rbac.Delete, rbac.User),
	},
	"api_key": {
		"create": power(rbac.Create, rbac.APIKey),
		"read":   power(rbac.Read, rbac.APIKey),
		"delete": power(rbac.Delete, rbac.APIKey),
	},
	"user_secret": {
		"create": power(rbac.Create, rbac.UserSecret),
		"read":   power(rbac.Read, rbac.UserSecret),
		"update": power(rbac.Update, rbac.UserSecret),
		"delete": power(rbac.Delete, rbac.UserSecret),
	},
	"user_device": {
		"create": power(rbac.Create, rbac.UserDevice),
		"read":   power(rbac.Read, rbac.UserDevice),
		"update": power(rbac.Update, rbac.UserDevice),
		"delete": power(rbac.Delete, rbac.UserDevice),
	},
	"user_ssh_key": {
		"create": power(rbac.Create, rbac.UserSSHKey),
		"read":   power(rbac.Read, rbac.UserSSHKey),
		"delete": power(rbac.Delete, rbac.UserSSHKey),
	},
	"assign_role": {
		"assign":   power(rbac.Manage, rbac.User),
		"unassign": power(rbac.Manage, rbac.User),
		"read":     power(rbac.Read, rbac.User),
	},
	"organization": {
		"create": power(rbac.Create, rbac.Organization),
	},
	"file": {
		"create": power(rbac.Create, rbac.File),
		"read":   power(rbac.Read, rbac.File),
	},
	"deployment_config": {
		"read":   power(rbac.Read, rbac.Deployment),
		"update": power(rbac.Update, rbac.Deployment),
	},
	"deployment_stats": {
		"read": power(rbac.Read, rbac.Deployment),
	},
	"debug_info": {
		"read": power(rbac.Read, rbac.Deployment),
	},
}
