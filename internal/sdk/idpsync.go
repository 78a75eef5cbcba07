package sdk

import (
	"context"
	"net/http"

	"github.com/google/uuid"
)

// OrganizationSyncSettings say to which organizations users of the identity provider belong. Without a field, sync is
// off.
type OrganizationSyncSettings struct {
	// Field is the claim that lists texts.
	Field string `json:"field"`
	// Mapping lists the organizations for each of these texts.
	Mapping Map[List[uuid.UUID]] `json:"mapping"`
	// AssignDefault makes all users members of the default organization.
	AssignDefault bool `json:"organization_assign_default"`
}

// GroupSyncSettings say to which groups of an organization users of the identity provider belong. Without a field, sync
// is off.
type GroupSyncSettings struct {
	Field string `json:"field"`
	// Mapping lists the groups for each text in the claim. A text without a mapping is the name of a group.
	Mapping Map[List[uuid.UUID]] `json:"mapping"`
	// RegexFilter must match a text without a mapping for it to count; nil means that all count.
	RegexFilter *string `json:"regex_filter"`
	// AutoCreate creates the groups whose names are missing.
	AutoCreate bool `json:"auto_create_missing_groups"`
	// LegacyNameMapping renames texts before anything else.
	LegacyNameMapping Map[string] `json:"legacy_group_name_mapping,omitempty"`
}

// RoleSyncSettings say which roles in an organization users of the identity provider have. Without a field, sync is
// off.
type RoleSyncSettings struct {
	Field string `json:"field"`
	// Mapping lists the roles for each text in the claim. A text without a mapping is the name of a role.
	Mapping Map[List[string]] `json:"mapping"`
}

// PatchOrganizationSyncConfigRequest changes organization sync without its mapping.
type PatchOrganizationSyncConfigRequest struct {
	Field         string `json:"field"`
	AssignDefault bool   `json:"assign_default"`
}

// PatchGroupSyncConfigRequest changes group sync without its mapping.
type PatchGroupSyncConfigRequest struct {
	Field       string  `json:"field"`
	RegexFilter *string `json:"regex_filter"`
	AutoCreate  bool    `json:"auto_create_missing_groups"`
}

// PatchRoleSyncConfigRequest changes role sync without its mapping.
type PatchRoleSyncConfigRequest struct {
	Field string `json:"field"`
}

// SyncMapping is one text in a claim, and what users who have it get: the id of an organization or group, or the name
// of a role.
type SyncMapping struct {
	Given string `json:"given"`
	Gets  string `json:"gets"`
}

// PatchSyncMappingRequest adds to a mapping and removes from it. An entry in both is removed.
type PatchSyncMappingRequest struct {
	Add    List[SyncMapping] `json:"add"`
	Remove List[SyncMapping] `json:"remove"`
}

const organizationSyncPath = "settings/idpsync/organization"

func syncPath(org, kind string) string {
	return "organizations/" + seg(org) + "/settings/idpsync/" + kind
}

func (c *Client) OrganizationSync(ctx context.Context) (OrganizationSyncSettings, error) {
	return get[OrganizationSyncSettings](ctx, c, organizationSyncPath)
}

// SetOrganizationSync replaces the settings of organization sync.
func (c *Client) SetOrganizationSync(
	ctx context.Context, s OrganizationSyncSettings,
) (OrganizationSyncSettings, error) {
	return send[OrganizationSyncSettings](ctx, c, http.MethodPatch, organizationSyncPath, s)
}

func (c *Client) GroupSync(ctx context.Context, org string) (GroupSyncSettings, error) {
	return get[GroupSyncSettings](ctx, c, syncPath(org, "groups"))
}

// SetGroupSync replaces the settings of group sync in an organization.
func (c *Client) SetGroupSync(ctx context.Context, org string, s GroupSyncSettings) (GroupSyncSettings, error) {
	return send[GroupSyncSettings](ctx, c, http.MethodPatch, syncPath(org, "groups"), s)
}

func (c *Client) RoleSync(ctx context.Context, org string) (RoleSyncSettings, error) {
	return get[RoleSyncSettings](ctx, c, syncPath(org, "roles"))
}

// SetRoleSync replaces the settings of role sync in an organization.
func (c *Client) SetRoleSync(ctx context.Context, org string, s RoleSyncSettings) (RoleSyncSettings, error) {
	return send[RoleSyncSettings](ctx, c, http.MethodPatch, syncPath(org, "roles"), s)
}
