package sdk

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// Everyone is the name of the group of all members of an organization. Its id is the organization's.
const Everyone = "Everyone"

// The roles in which templates and workspaces are shared.
const (
	RoleUse   = "use"
	RoleAdmin = "admin"
)

// GroupSource tells who created a group.
type GroupSource string

const (
	GroupSourceUser GroupSource = "user"
	GroupSourceOIDC GroupSource = "oidc"
)

// ReducedUser is a user as members of the same organization see them. The email is empty unless the caller may see the
// account.
type ReducedUser struct {
	MinimalUser
	Email           string     `json:"email"`
	CreatedAt       time.Time  `json:"created_at"`
	UpdatedAt       time.Time  `json:"updated_at"`
	LastSeenAt      *time.Time `json:"last_seen_at,omitempty"`
	Status          UserStatus `json:"status"`
	LoginType       LoginType  `json:"login_type"`
	ThemePreference string     `json:"theme_preference"`
}

// Group is a group of users in an organization. Lists of groups contain the first members of each only.
type Group struct {
	ID                      uuid.UUID         `json:"id"`
	Name                    string            `json:"name"`
	DisplayName             string            `json:"display_name"`
	OrganizationID          uuid.UUID         `json:"organization_id"`
	OrganizationName        string            `json:"organization_name"`
	OrganizationDisplayName string            `json:"organization_display_name"`
	Members                 List[ReducedUser] `json:"members"`
	TotalMemberCount        int               `json:"total_member_count"`
	AvatarURL               string            `json:"avatar_url"`
	QuotaAllowance          int               `json:"quota_allowance"` // credits a day
	Source                  GroupSource       `json:"source"`
}

// GroupMembersResponse is one page of a group's members.
type GroupMembersResponse struct {
	Users List[ReducedUser] `json:"users"`
	Count int               `json:"count"`
}

// CreateGroupRequest creates a group.
type CreateGroupRequest struct {
	Name           string `json:"name"`
	DisplayName    string `json:"display_name,omitempty"`
	AvatarURL      string `json:"avatar_url,omitempty"`
	QuotaAllowance int    `json:"quota_allowance,omitempty"`
}

// PatchGroupRequest changes the fields that are set.
type PatchGroupRequest struct {
	AddUsers       []string `json:"add_users,omitempty"`    // ids
	RemoveUsers    []string `json:"remove_users,omitempty"` // ids
	Name           string   `json:"name,omitempty"`
	DisplayName    *string  `json:"display_name,omitempty"`
	AvatarURL      *string  `json:"avatar_url,omitempty"`
	QuotaAllowance *int     `json:"quota_allowance,omitempty"`
}

// GroupsQuery selects groups. The zero value means all groups.
type GroupsQuery struct {
	Organization string // id or name
	HasMember    string // id or name of a user
	Search       string // in names
}

// ACLAvailable lists with whom a template can be shared.
type ACLAvailable struct {
	Users  List[ReducedUser] `json:"users"`
	Groups List[Group]       `json:"groups"`
}

// WorkspaceACL lists with whom a workspace is shared.
type WorkspaceACL struct {
	Users  List[WorkspaceUser]  `json:"users"`
	Groups List[WorkspaceGroup] `json:"group"`
}

// WorkspaceUser is a user with whom a workspace is shared.
type WorkspaceUser struct {
	MinimalUser
	Role string `json:"role"` // use, admin
}

// WorkspaceGroup is a group with which a workspace is shared.
type WorkspaceGroup struct {
	Group
	Role string `json:"role"` // use, admin
}

// UpdateWorkspaceACLRequest maps ids of users and groups to a role; "" removes one.
type UpdateWorkspaceACLRequest struct {
	UserRoles  map[string]string `json:"user_roles,omitempty"`
	GroupRoles map[string]string `json:"group_roles,omitempty"`
}

// Groups lists the groups that the caller may see.
func (c *Client) Groups(ctx context.Context, query GroupsQuery) ([]Group, error) {
	q := url.Values{}
	for key, value := range map[string]string{
		"organization": query.Organization, "has_member": query.HasMember, "q": query.Search,
	} {
		if value != "" {
			q.Set(key, value)
		}
	}
	return get[[]Group](ctx, c, "groups?"+q.Encode())
}

// GroupByName returns a group of an organization.
func (c *Client) GroupByName(ctx context.Context, organization, name string) (Group, error) {
	return get[Group](ctx, c, "organizations/"+seg(organization)+"/groups/"+seg(name))
}

// Group returns a group with all its members.
func (c *Client) Group(ctx context.Context, id uuid.UUID) (Group, error) {
	return get[Group](ctx, c, "groups/"+id.String())
}

// GroupMembers lists a page of a group's members. A limit of 0 means the server's own.
func (c *Client) GroupMembers(ctx context.Context, id uuid.UUID, limit, offset int) (GroupMembersResponse, error) {
	return get[GroupMembersResponse](ctx, c,
		"groups/"+id.String()+"/members?limit="+strconv.Itoa(limit)+"&offset="+strconv.Itoa(offset))
}

// CreateGroup creates a group in an organization.
func (c *Client) CreateGroup(ctx context.Context, organization string, req CreateGroupRequest) (Group, error) {
	return create[Group](ctx, c, "organizations/"+seg(organization)+"/groups", req)
}

// PatchGroup changes a group.
func (c *Client) PatchGroup(ctx context.Context, id uuid.UUID, req PatchGroupRequest) (Group, error) {
	return send[Group](ctx, c, http.MethodPatch, "groups/"+id.String(), req)
}

// DeleteGroup deletes a group, and takes away what was shared with it.
func (c *Client) DeleteGroup(ctx context.Context, id uuid.UUID) error {
	return c.do(ctx, http.MethodDelete, "groups/"+id.String(), nil, nil)
}

// WorkspaceACL returns with whom a workspace is shared.
func (c *Client) WorkspaceACL(ctx context.Context, workspace uuid.UUID) (WorkspaceACL, error) {
	return get[WorkspaceACL](ctx, c, "workspaces/"+workspace.String()+"/acl")
}

// UpdateWorkspaceACL changes with whom a workspace is shared.
func (c *Client) UpdateWorkspaceACL(ctx context.Context, workspace uuid.UUID, req UpdateWorkspaceACLRequest) error {
	return c.do(ctx, http.MethodPatch, "workspaces/"+workspace.String()+"/acl", req, nil)
}

// DeleteWorkspaceACL ends all sharing of a workspace.
func (c *Client) DeleteWorkspaceACL(ctx context.Context, workspace uuid.UUID) error {
	return c.do(ctx, http.MethodDelete, "workspaces/"+workspace.String()+"/acl", nil, nil)
}

// TemplateACLAvailable lists with whom a template can be shared. q searches by name; "" means all.
func (c *Client) TemplateACLAvailable(ctx context.Context, template uuid.UUID, q string) (ACLAvailable, error) {
	return get[ACLAvailable](ctx, c, "templates/"+template.String()+"/acl/available"+page(q, 0, 0))
}

// WorkspaceQuota is what a user's workspaces in an organization cost, in credits a day.
type WorkspaceQuota struct {
	CreditsConsumed int64 `json:"credits_consumed"`
	Budget          int64 `json:"budget"` // -1: no limit
}

// WorkspaceQuota returns the quota of a user in an organization.
func (c *Client) WorkspaceQuota(ctx context.Context, organization, user string) (WorkspaceQuota, error) {
	return get[WorkspaceQuota](ctx, c, "organizations/"+seg(organization)+"/members/"+seg(user)+"/workspace-quota")
}
