package sdk

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"
)

// Organization owns templates, workspaces, provisioners, groups and roles.
type Organization struct {
	ID          uuid.UUID `json:"id"`
	Name        string    `json:"name"`
	DisplayName string    `json:"display_name"`
	Description string    `json:"description"`
	Icon        string    `json:"icon"`
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
	IsDefault   bool      `json:"is_default"`
	// DefaultOrgMemberRoles are the roles of every new member: none.
	DefaultOrgMemberRoles List[string] `json:"default_org_member_roles"`
}

// CreateOrganizationRequest creates an organization. Its creator becomes a member and administrator of it.
type CreateOrganizationRequest struct {
	Name        string `json:"name"`
	DisplayName string `json:"display_name,omitempty"` // "": the name
	Description string `json:"description,omitempty"`
	Icon        string `json:"icon,omitempty"`
}

// UpdateOrganizationRequest changes an organization. Empty names and nil fields keep what is stored.
type UpdateOrganizationRequest struct {
	Name        string  `json:"name,omitempty"`
	DisplayName string  `json:"display_name,omitempty"`
	Description *string `json:"description,omitempty"`
	Icon        *string `json:"icon,omitempty"`
}

// OrganizationMember is a user in an organization. Email, status and login type are sent to those who administer the
// members or may see the account; global roles to the latter only.
type OrganizationMember struct {
	UserID         uuid.UUID  `json:"user_id"`
	OrganizationID uuid.UUID  `json:"organization_id"`
	CreatedAt      time.Time  `json:"created_at"`
	UpdatedAt      time.Time  `json:"updated_at"`
	Roles          List[Role] `json:"roles"` // in the organization
	Username       string     `json:"username"`
	Name           string     `json:"name"`
	AvatarURL      string     `json:"avatar_url"`
	Email          string     `json:"email"`
	GlobalRoles    List[Role] `json:"global_roles"`
	Status         UserStatus `json:"status,omitempty"`
	LoginType      LoginType  `json:"login_type,omitempty"`
	UserCreatedAt  time.Time  `json:"user_created_at"`
	UserUpdatedAt  time.Time  `json:"user_updated_at"`
	LastSeenAt     *time.Time `json:"last_seen_at,omitempty"`
}

// PaginatedMembers is one page of members and how many there are in all.
type PaginatedMembers struct {
	Members List[OrganizationMember] `json:"members"`
	Count   int                      `json:"count"`
}

// Permission is an action on a kind of object, in the words that clients use: "template", "update". Action "*" means
// all actions.
type Permission struct {
	Negate       bool   `json:"negate"`
	ResourceType string `json:"resource_type"`
	Action       string `json:"action"`
}

// DetailedRole is a role with what it permits. Only OrganizationPermissions of organization roles are filled in.
type DetailedRole struct {
	Name                          string           `json:"name"`
	OrganizationID                string           `json:"organization_id,omitempty"`
	DisplayName                   string           `json:"display_name"`
	SitePermissions               List[Permission] `json:"site_permissions"`
	OrganizationPermissions       List[Permission] `json:"organization_permissions"`
	OrganizationMemberPermissions List[Permission] `json:"organization_member_permissions"`
	UserPermissions               List[Permission] `json:"user_permissions"`
}

// AssignableRole is a role, and whether the caller may grant it.
type AssignableRole struct {
	DetailedRole
	Assignable bool `json:"assignable"`
	BuiltIn    bool `json:"built_in"`
}

// CustomRoleRequest creates or replaces a custom role of an organization. Only organization permissions can be set.
type CustomRoleRequest struct {
	Name                          string           `json:"name"`
	DisplayName                   string           `json:"display_name"`
	SitePermissions               List[Permission] `json:"site_permissions"`
	OrganizationPermissions       List[Permission] `json:"organization_permissions"`
	OrganizationMemberPermissions List[Permission] `json:"organization_member_permissions"`
	UserPermissions               List[Permission] `json:"user_permissions"`
}

// AuthorizationRequest asks whether the caller may do things; the keys name the questions.
type AuthorizationRequest struct {
	Checks Map[AuthorizationCheck] `json:"checks"`
}

// AuthorizationCheck is one question: may the caller do the action to the object?
type AuthorizationCheck struct {
	Object AuthorizationObject `json:"object"`
	Action string              `json:"action"`
}

// AuthorizationObject describes one object or, without ResourceID, all objects of a kind. A missing OrganizationID
// means all organizations; AnyOrgOwner means one of the caller's at least.
type AuthorizationObject struct {
	ResourceType   string `json:"resource_type"`
	OwnerID        string `json:"owner_id,omitempty"` // a user's id or "me"
	OrganizationID string `json:"organization_id,omitempty"`
	ResourceID     string `json:"resource_id,omitempty"`
	AnyOrgOwner    bool   `json:"any_org,omitempty"`
}

// AuthorizationResponse answers each question by its key.
type AuthorizationResponse map[string]bool

// Organizations returns the organizations that the caller may see.
func (c *Client) Organizations(ctx context.Context) ([]Organization, error) {
	return get[[]Organization](ctx, c, "organizations")
}

// UserOrganizations returns the organizations that a user is a member of.
func (c *Client) UserOrganizations(ctx context.Context, user string) ([]Organization, error) {
	return get[[]Organization](ctx, c, "users/"+seg(user)+"/organizations")
}

// Organization returns an organization by name or id.
func (c *Client) Organization(ctx context.Context, organization string) (Organization, error) {
	return get[Organization](ctx, c, "organizations/"+seg(organization))
}

// CreateOrganization creates an organization.
func (c *Client) CreateOrganization(ctx context.Context, req CreateOrganizationRequest) (Organization, error) {
	return create[Organization](ctx, c, "organizations", req)
}

// UpdateOrganization changes an organization.
func (c *Client) UpdateOrganization(
	ctx context.Context, organization string, req UpdateOrganizationRequest,
) (Organization, error) {
	return send[Organization](ctx, c, http.MethodPatch, "organizations/"+seg(organization), req)
}

// DeleteOrganization deletes an organization that is no longer used.
func (c *Client) DeleteOrganization(ctx context.Context, organization string) error {
	return c.do(ctx, http.MethodDelete, "organizations/"+seg(organization), nil, nil)
}

// OrganizationMembers returns all members.
func (c *Client) OrganizationMembers(ctx context.Context, organization string) ([]OrganizationMember, error) {
	return get[[]OrganizationMember](ctx, c, "organizations/"+seg(organization)+"/members")
}

// OrganizationMember returns one member.
func (c *Client) OrganizationMember(ctx context.Context, organization, user string) (OrganizationMember, error) {
	return get[OrganizationMember](ctx, c, "organizations/"+seg(organization)+"/members/"+seg(user))
}

// RemoveOrganizationMember ends a membership.
func (c *Client) RemoveOrganizationMember(ctx context.Context, organization, user string) error {
	return c.do(ctx, http.MethodDelete, "organizations/"+seg(organization)+"/members/"+seg(user), nil, nil)
}

// UpdateOrganizationMemberRoles replaces a member's roles.
func (c *Client) UpdateOrganizationMemberRoles(
	ctx context.Context, organization, user string, req UpdateRolesRequest,
) (OrganizationMember, error) {
	return send[OrganizationMember](ctx, c, http.MethodPut,
		"organizations/"+seg(organization)+"/members/"+seg(user)+"/roles", req)
}

// OrganizationRoles returns the built-in and custom roles of an organization.
func (c *Client) OrganizationRoles(ctx context.Context, organization string) ([]AssignableRole, error) {
	return get[[]AssignableRole](ctx, c, "organizations/"+seg(organization)+"/members/roles")
}

// CreateOrganizationRole creates a custom role.
func (c *Client) CreateOrganizationRole(
	ctx context.Context, organization string, req CustomRoleRequest,
) (DetailedRole, error) {
	return send[DetailedRole](ctx, c, http.MethodPost, "organizations/"+seg(organization)+"/members/roles", req)
}

// UpdateOrganizationRole replaces a custom role.
func (c *Client) UpdateOrganizationRole(
	ctx context.Context, organization string, req CustomRoleRequest,
) (DetailedRole, error) {
	return send[DetailedRole](ctx, c, http.MethodPut, "organizations/"+seg(organization)+"/members/roles", req)
}

// DeleteOrganizationRole deletes a custom role, and takes it from the members who have it.
func (c *Client) DeleteOrganizationRole(ctx context.Context, organization, name string) error {
	return c.do(ctx, http.MethodDelete, "organizations/"+seg(organization)+"/members/roles/"+seg(name), nil, nil)
}

// AuthCheck answers what the caller may do.
func (c *Client) AuthCheck(ctx context.Context, req AuthorizationRequest) (AuthorizationResponse, error) {
	return send[AuthorizationResponse](ctx, c, http.MethodPost, "authcheck", req)
}

// WorkspaceSharing returns the rule for sharing an organization's workspaces.
func (c *Client) WorkspaceSharing(ctx context.Context, organization string) (WorkspaceSharingSettings, error) {
	return get[WorkspaceSharingSettings](ctx, c,
		"organizations/"+url.PathEscape(organization)+"/settings/workspace-sharing")
}

// SetWorkspaceSharing is refused with a sentence: on this server the rule is fixed.
func (c *Client) SetWorkspaceSharing(
	ctx context.Context, organization string, s WorkspaceSharingSettings,
) (WorkspaceSharingSettings, error) {
	return send[WorkspaceSharingSettings](ctx, c, http.MethodPatch,
		"organizations/"+url.PathEscape(organization)+"/settings/workspace-sharing", s)
}
