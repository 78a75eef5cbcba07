package sdk

import (
	"context"
	"net/http"
	"time"

	"cmp"
	"github.com/google/uuid"
	"net/url"
)

// ProvisionerTerraform is the only kind of provisioner.
const ProvisionerTerraform = "terraform"

// StorageFile is the only way template sources are stored: as an uploaded archive.
const StorageFile = "file"

// Template is a template for workspaces. Its versions hold the source; one of them is active.
type Template struct {
	ID                           uuid.UUID            `json:"id"`
	CreatedAt                    time.Time            `json:"created_at"`
	UpdatedAt                    time.Time            `json:"updated_at"`
	OrganizationID               uuid.UUID            `json:"organization_id"`
	OrganizationName             string               `json:"organization_name"`
	OrganizationDisplayName      string               `json:"organization_display_name"`
	OrganizationIcon             string               `json:"organization_icon"`
	Name                         string               `json:"name"`
	DisplayName                  string               `json:"display_name"`
	Description                  string               `json:"description"`
	Icon                         string               `json:"icon"`
	Provisioner                  string               `json:"provisioner"` // "terraform"
	ActiveVersionID              uuid.UUID            `json:"active_version_id"`
	ActiveUserCount              int                  `json:"active_user_count"` // -1 if unknown
	BuildTimeStats               Map[BuildTimeStat]   `json:"build_time_stats"`  // by transition
	Deprecated                   bool                 `json:"deprecated"`
	DeprecationMessage           string               `json:"deprecation_message"`
	Deleted                      bool                 `json:"deleted"`
	DefaultTTLMillis             int64                `json:"default_ttl_ms"`
	MaxTTLMillis                 int64                `json:"max_ttl_ms"`
	AutostopNotifyMillis         int64                `json:"time_til_autostop_notify_ms"`
	ActivityBumpMillis           int64                `json:"activity_bump_ms"`
	AutostopRequirement          AutostopRequirement  `json:"autostop_requirement"`
	AutostartRequirement         AutostartRequirement `json:"autostart_requirement"`
	CreatedByID                  uuid.UUID            `json:"created_by_id"`
	CreatedByName                string               `json:"created_by_name"`
	AllowUserAutostart           bool                 `json:"allow_user_autostart"`
	AllowUserAutostop            bool                 `json:"allow_user_autostop"`
	AllowUserCancelWorkspaceJobs bool                 `json:"allow_user_cancel_workspace_jobs"`
	// AllowReplacingResources lets builds without a question, such as automatic ones, replace and delete what
	// workspaces keep while they are stopped.
	AllowReplacingResources    bool     `json:"allow_replacing_resources"`
	FailureTTLMillis           int64    `json:"failure_ttl_ms"`
	TimeTilDormantMillis       int64    `json:"time_til_dormant_ms"`
	TimeTilDormantDeleteMillis int64    `json:"time_til_dormant_autodelete_ms"`
	DisableModuleCache         bool     `json:"disable_module_cache"` // always false
	RequireActiveVersion       bool     `json:"require_active_version"`
	MaxPortShareLevel          AppShare `json:"max_port_share_level"`
	UseClassicParameterFlow    bool     `json:"use_classic_parameter_flow"`
	CORSBehavior               string   `json:"cors_behavior"` // "simple"
	// IdentityAudiences and IdentityBuildAudience are as in TemplateIdentity.
	IdentityAudiences     List[string] `json:"identity_audiences"`
	IdentityBuildAudience string       `json:"identity_build_audience"`
}

// BuildTimeStat is how long builds took, in milliseconds; nil if unknown.
type BuildTimeStat struct {
	P50 *int64 `json:"P50"`
	P95 *int64 `json:"P95"`
}

// AutostopRequirement names the days on which a running workspace must stop when its owner's quiet hours begin. No day:
// none.
type AutostopRequirement struct {
	DaysOfWeek List[string] `json:"days_of_week"`
	Weeks      int64        `json:"weeks"` // every how many weeks, 1 to 16; 0 means 1
}

// AutostartRequirement names the days on which schedules start workspaces.
type AutostartRequirement struct {
	DaysOfWeek List[string] `json:"days_of_week"`
}

type CreateTemplateRequest struct {
	Name                 string    `json:"name"`
	DisplayName          string    `json:"display_name,omitempty"`
	Description          string    `json:"description,omitempty"`
	Icon                 string    `json:"icon,omitempty"`
	VersionID            uuid.UUID `json:"template_version_id"`
	DefaultTTLMillis     *int64    `json:"default_ttl_ms,omitempty"`
	RequireActiveVersion bool      `json:"require_active_version,omitempty"`
	// DisableEveryoneGroupAccess makes the template private: it is not shared with Everyone.
	DisableEveryoneGroupAccess bool `json:"disable_everyone_group_access,omitempty"`
	TemplatePolicy
	TemplateIdentity
	FixedTemplateSettings
}

// FixedTemplateSettings are settings of the API that have a fixed value here. A request may contain that value; any
// other is refused. One of them has different names when a template is created and when it is changed.
type FixedTemplateSettings struct {
	MaxPortShareLevel       *AppShare `json:"max_port_share_level,omitempty"`
	CORSBehavior            *string   `json:"cors_behavior,omitempty"`
	UseClassicParameterFlow *bool     `json:"use_classic_parameter_flow,omitempty"`
	ClassicParameterFlow    *bool     `json:"template_use_classic_parameter_flow,omitempty"`
	DisableModuleCache      *bool     `json:"disable_module_cache,omitempty"`
}

// UpdateTemplateRequest changes the fields that are set.
type UpdateTemplateRequest struct {
	Name                 *string `json:"name,omitempty"`
	DisplayName          *string `json:"display_name,omitempty"`
	Description          *string `json:"description,omitempty"`
	Icon                 *string `json:"icon,omitempty"`
	DefaultTTLMillis     *int64  `json:"default_ttl_ms,omitempty"`
	RequireActiveVersion *bool   `json:"require_active_version,omitempty"`
	DeprecationMessage   *string `json:"deprecation_message,omitempty"` // "": no longer deprecated
	// UpdateWorkspaceLastUsedAt counts all workspaces of the template as used now, so that a new dormancy limit does
	// not affect them at once.
	UpdateWorkspaceLastUsedAt *bool `json:"update_workspace_last_used_at,omitempty"`
	// UpdateWorkspaceDormantAt counts all dormant workspaces of the template as dormant since now, so that a new
	// deletion time does not affect them at once.
	UpdateWorkspaceDormantAt *bool `json:"update_workspace_dormant_at,omitempty"`
	// DisableEveryoneGroupAccess ends the sharing with Everyone. If it is false, the sharing stays as it is.
	DisableEveryoneGroupAccess bool `json:"disable_everyone_group_access,omitempty"`
	TemplatePolicy
	TemplateIdentity
	FixedTemplateSettings
}

// UpdateActiveVersionRequest makes a version of the template the active one.
type UpdateActiveVersionRequest struct {
	ID uuid.UUID `json:"id"`
}

// TemplateACL lists with whom a template is shared.
type TemplateACL struct {
	Users  List[TemplateUser]  `json:"users"`
	Groups List[TemplateGroup] `json:"group"`
}

// TemplateUser is a user with whom a template is shared.
type TemplateUser struct {
	User
	Role string `json:"role"` // use, admin
}

// TemplateGroup is a group with which a template is shared.
type TemplateGroup struct {
	Group
	Role string `json:"role"` // use, admin
}

// UpdateTemplateACLRequest maps user and group ids to a role; "" removes one.
type UpdateTemplateACLRequest struct {
	UserPerms  map[string]string `json:"user_perms,omitempty"`
	GroupPerms map[string]string `json:"group_perms,omitempty"`
}

// UploadResponse names an uploaded file.
type UploadResponse struct {
	ID uuid.UUID `json:"hash"`
}

func (c *Client) CreateTemplate(ctx context.Context, organization string, req CreateTemplateRequest) (Template, error) {
	return create[Template](ctx, c, "organizations/"+seg(organization)+"/templates", req)
}

// Templates lists the templates that the caller may see. q is a search, "" for all.
// Templates lists the templates that match q, in an order; "" means by name.
func (c *Client) Templates(ctx context.Context, q string, order TemplateOrder) ([]Template, error) {
	path := "templates" + cmp.Or(page(q, 0, 0), "?")
	if order != "" {
		path += "&sort=" + url.QueryEscape(string(order))
	}
	return get[[]Template](ctx, c, path)
}

func (c *Client) OrganizationTemplates(
	ctx context.Context, organization string, order TemplateOrder,
) ([]Template, error) {
	path := "organizations/" + seg(organization) + "/templates"
	if order != "" {
		path += "?sort=" + url.QueryEscape(string(order))
	}
	return get[[]Template](ctx, c, path)
}

func (c *Client) TemplateByName(ctx context.Context, organization, name string) (Template, error) {
	return get[Template](ctx, c, "organizations/"+seg(organization)+"/templates/"+seg(name))
}

func (c *Client) Template(ctx context.Context, id uuid.UUID) (Template, error) {
	return get[Template](ctx, c, "templates/"+id.String())
}

func (c *Client) UpdateTemplate(ctx context.Context, id uuid.UUID, req UpdateTemplateRequest) (Template, error) {
	return send[Template](ctx, c, http.MethodPatch, "templates/"+id.String(), req)
}

func (c *Client) DeleteTemplate(ctx context.Context, id uuid.UUID) error {
	return c.do(ctx, http.MethodDelete, "templates/"+id.String(), nil, nil)
}

// TemplateVersions lists a template's versions, oldest first.
func (c *Client) TemplateVersions(ctx context.Context, template uuid.UUID) ([]TemplateVersion, error) {
	return get[[]TemplateVersion](ctx, c, "templates/"+template.String()+"/versions")
}

// AllTemplateVersions is like TemplateVersions, with archived ones.
func (c *Client) AllTemplateVersions(ctx context.Context, template uuid.UUID) ([]TemplateVersion, error) {
	return get[[]TemplateVersion](ctx, c, "templates/"+template.String()+"/versions?include_archived=true")
}

// ArchiveTemplateVersion archives a version, or with false the reverse.
func (c *Client) ArchiveTemplateVersion(ctx context.Context, version uuid.UUID, archive bool) error {
	action := "unarchive"
	if archive {
		action = "archive"
	}
	return c.do(ctx, http.MethodPost, "templateversions/"+version.String()+"/"+action, nil, nil)
}

func (c *Client) ArchiveTemplateVersions(
	ctx context.Context, template uuid.UUID, req ArchiveTemplateVersionsRequest,
) (ArchiveTemplateVersionsResponse, error) {
	return send[ArchiveTemplateVersionsResponse](ctx, c, http.MethodPost,
		"templates/"+template.String()+"/versions/archive", req)
}

func (c *Client) TemplateVersionByName(ctx context.Context, template uuid.UUID, name string) (TemplateVersion, error) {
	return get[TemplateVersion](ctx, c, "templates/"+template.String()+"/versions/"+seg(name))
}

func (c *Client) UpdateActiveVersion(ctx context.Context, template uuid.UUID, req UpdateActiveVersionRequest) error {
	return c.do(ctx, http.MethodPatch, "templates/"+template.String()+"/versions", req, nil)
}

func (c *Client) TemplateACL(ctx context.Context, template uuid.UUID) (TemplateACL, error) {
	return get[TemplateACL](ctx, c, "templates/"+template.String()+"/acl")
}

func (c *Client) UpdateTemplateACL(ctx context.Context, template uuid.UUID, req UpdateTemplateACLRequest) error {
	return c.do(ctx, http.MethodPatch, "templates/"+template.String()+"/acl", req, nil)
}
