package sdk

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// TemplateVersion is one upload of a template's source and what its import found.
type TemplateVersion struct {
	ID                  uuid.UUID            `json:"id"`
	TemplateID          *uuid.UUID           `json:"template_id,omitempty"`
	OrganizationID      uuid.UUID            `json:"organization_id"`
	CreatedAt           time.Time            `json:"created_at"`
	UpdatedAt           time.Time            `json:"updated_at"`
	Name                string               `json:"name"`
	Message             string               `json:"message"`
	Job                 ProvisionerJob       `json:"job"`
	Readme              string               `json:"readme"`
	ReadmeMetadata      ReadmeMetadata       `json:"readme_metadata"`
	CreatedBy           MinimalUser          `json:"created_by"`
	Archived            bool                 `json:"archived"`
	Warnings            List[string]         `json:"warnings,omitempty"`
	MatchedProvisioners *MatchedProvisioners `json:"matched_provisioners,omitempty"`
	HasExternalAgent    bool                 `json:"has_external_agent"`
}

// ReadmeMetadata is what the front matter of a version's README says about its template. A field that is empty is absent
// there, or is not valid for a template. Clients take them for a new template; the server never sets them.
type ReadmeMetadata struct {
	DisplayName string `json:"display_name,omitempty"`
	Description string `json:"description,omitempty"`
	Icon        string `json:"icon,omitempty"` // a path on the server
}

type CreateTemplateVersionRequest struct {
	Name               string          `json:"name,omitempty"` // "": the server picks one
	Message            string          `json:"message,omitempty"`
	TemplateID         *uuid.UUID      `json:"template_id,omitempty"`
	StorageMethod      string          `json:"storage_method"` // StorageFile
	FileID             uuid.UUID       `json:"file_id,omitzero"`
	ExampleID          string          `json:"example_id,omitempty"` // the id of a starter, instead of a file
	Provisioner        string          `json:"provisioner"`          // ProvisionerTerraform
	Tags               Map[string]     `json:"tags"`
	UserVariableValues []VariableValue `json:"user_variable_values,omitempty"`
}

// TemplateExample is a starter, a template that comes with the server.
type TemplateExample struct {
	ID          string       `json:"id"` // for CreateTemplateVersionRequest
	Name        string       `json:"name"`
	Description string       `json:"description"`
	Icon        string       `json:"icon"`
	Tags        List[string] `json:"tags"`
	Markdown    string       `json:"markdown"` // its README
}

type UpdateTemplateVersionRequest struct {
	Name    string  `json:"name"` // "": unchanged
	Message *string `json:"message,omitempty"`
}

// ArchiveTemplateVersionsRequest archives versions of a template that are not in use: those whose import did not
// succeed, or all.
type ArchiveTemplateVersionsRequest struct {
	All bool `json:"all"`
}

type ArchiveTemplateVersionsResponse struct {
	TemplateID  uuid.UUID       `json:"template_id"`
	ArchivedIDs List[uuid.UUID] `json:"archived_ids"`
}

// VariableValue is the value of a Terraform variable.
type VariableValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// TemplateVersionVariable is a Terraform variable of a template. Sensitive values are empty.
type TemplateVersionVariable struct {
	Name         string `json:"name"`
	Description  string `json:"description"`
	Type         string `json:"type"`
	Value        string `json:"value"`
	DefaultValue string `json:"default_value"`
	Required     bool   `json:"required"`
	Sensitive    bool   `json:"sensitive"`
}

// TemplateVersionParameter is a coder_parameter of a template.
type TemplateVersionParameter struct {
	Name                 string                           `json:"name"`
	DisplayName          string                           `json:"display_name,omitempty"`
	Description          string                           `json:"description"`
	DescriptionPlaintext string                           `json:"description_plaintext"`
	Type                 string                           `json:"type"`      // string number bool list(string)
	FormType             string                           `json:"form_type"` // input textarea dropdown radio checkbox switch slider multi-select tag-select
	Mutable              bool                             `json:"mutable"`
	DefaultValue         string                           `json:"default_value"`
	Icon                 string                           `json:"icon"`
	Options              List[TemplateVersionParamOption] `json:"options"`
	ValidationError      string                           `json:"validation_error,omitempty"`
	ValidationRegex      string                           `json:"validation_regex,omitempty"`
	ValidationMin        *int64                           `json:"validation_min,omitempty"`
	ValidationMax        *int64                           `json:"validation_max,omitempty"`
	ValidationMonotonic  string                           `json:"validation_monotonic,omitempty"` // increasing, decreasing
	Required             bool                             `json:"required"`                       // has no default
	Ephemeral            bool                             `json:"ephemeral"`
	// Dynamic is set if default, options and rules depend on other answers. Those given here apply to the defaults.
	Dynamic bool `json:"dynamic,omitempty"`
}

type TemplateVersionParamOption struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Value       string `json:"value"`
	Icon        string `json:"icon"`
}

// Preset is a named set of parameter values. Its field names are capitalised on the wire.
type Preset struct {
	ID          uuid.UUID             `json:"ID"`
	Name        string                `json:"Name"`
	Description string                `json:"Description"`
	Icon        string                `json:"Icon"`
	Default     bool                  `json:"Default"`
	Parameters  List[PresetParameter] `json:"Parameters"`
	// DesiredPrebuildInstances is how many prebuilt workspaces the server keeps ready outside of a schedule; nil for a
	// preset without them.
	DesiredPrebuildInstances *int `json:"DesiredPrebuildInstances,omitempty"`
}

type PresetParameter struct {
	Name  string `json:"Name"`
	Value string `json:"Value"`
}

// TemplateVersionExternalAuth is a login at another service that a template requires.
type TemplateVersionExternalAuth struct {
	ID              string `json:"id"`
	Type            string `json:"type"`
	DisplayName     string `json:"display_name"`
	DisplayIcon     string `json:"display_icon"`
	AuthenticateURL string `json:"authenticate_url"`
	Authenticated   bool   `json:"authenticated"`
	Optional        bool   `json:"optional,omitempty"`
}

// CreateDryRunRequest plans a workspace without building it.
type CreateDryRunRequest struct {
	WorkspaceName       string           `json:"workspace_name"`
	RichParameterValues []ParameterValue `json:"rich_parameter_values"`
	UserVariableValues  []VariableValue  `json:"user_variable_values,omitempty"`
}

// EvaluateParametersRequest requests the form for the given input.
type EvaluateParametersRequest struct {
	ID      int               `json:"id"`
	Inputs  map[string]string `json:"inputs"`
	OwnerID uuid.UUID         `json:"owner_id,omitzero"`
}

type EvaluateParametersResponse struct {
	ID          int                    `json:"id"`
	Diagnostics List[Diagnostic]       `json:"diagnostics"`
	Parameters  List[PreviewParameter] `json:"parameters"`
}

type Diagnostic struct {
	Severity string          `json:"severity"` // error, warning
	Summary  string          `json:"summary"`
	Detail   string          `json:"detail"`
	Extra    DiagnosticExtra `json:"extra"`
}

type DiagnosticExtra struct {
	Code string `json:"code"`
}

// PreviewParameter is a parameter as a form shows it.
type PreviewParameter struct {
	Name         string                    `json:"name"`
	DisplayName  string                    `json:"display_name"`
	Description  string                    `json:"description"`
	Type         string                    `json:"type"`
	FormType     string                    `json:"form_type"`
	Styling      json.RawMessage           `json:"styling"` // the template's JSON object; {} if it has none
	Mutable      bool                      `json:"mutable"`
	DefaultValue PreviewValue              `json:"default_value"`
	Icon         string                    `json:"icon"`
	Options      List[PreviewOption]       `json:"options"`
	Validations  List[ParameterValidation] `json:"validations"`
	Required     bool                      `json:"required"`
	Order        int64                     `json:"order"`
	Ephemeral    bool                      `json:"ephemeral"`
	Value        PreviewValue              `json:"value"`
	Diagnostics  List[Diagnostic]          `json:"diagnostics"`
}

type PreviewValue struct {
	Value string `json:"value"`
	Valid bool   `json:"valid"`
}

type PreviewOption struct {
	Name        string       `json:"name"`
	Description string       `json:"description"`
	Value       PreviewValue `json:"value"`
	Icon        string       `json:"icon"`
}

type ParameterValidation struct {
	Error     string  `json:"validation_error"`
	Regex     *string `json:"validation_regex"`
	Min       *int64  `json:"validation_min"`
	Max       *int64  `json:"validation_max"`
	Monotonic *string `json:"validation_monotonic"`
}

// TemplateExamples lists the starters that come with the server.
func (c *Client) TemplateExamples(ctx context.Context) ([]TemplateExample, error) {
	return get[[]TemplateExample](ctx, c, "templates/examples")
}

func (c *Client) CreateTemplateVersion(
	ctx context.Context, organization string, req CreateTemplateVersionRequest,
) (TemplateVersion, error) {
	return create[TemplateVersion](ctx, c, "organizations/"+seg(organization)+"/templateversions", req)
}

func (c *Client) TemplateVersion(ctx context.Context, id uuid.UUID) (TemplateVersion, error) {
	return get[TemplateVersion](ctx, c, "templateversions/"+id.String())
}

func (c *Client) UpdateTemplateVersion(
	ctx context.Context, id uuid.UUID, req UpdateTemplateVersionRequest,
) (TemplateVersion, error) {
	return send[TemplateVersion](ctx, c, http.MethodPatch, "templateversions/"+id.String(), req)
}

func (c *Client) CancelTemplateVersion(ctx context.Context, id uuid.UUID) error {
	return c.do(ctx, http.MethodPatch, "templateversions/"+id.String()+"/cancel", nil, nil)
}

func (c *Client) TemplateVersionParameters(ctx context.Context, id uuid.UUID) ([]TemplateVersionParameter, error) {
	return get[[]TemplateVersionParameter](ctx, c, "templateversions/"+id.String()+"/rich-parameters")
}

func (c *Client) TemplateVersionPresets(ctx context.Context, id uuid.UUID) ([]Preset, error) {
	return get[[]Preset](ctx, c, "templateversions/"+id.String()+"/presets")
}

func (c *Client) TemplateVersionResources(ctx context.Context, id uuid.UUID) ([]WorkspaceResource, error) {
	return get[[]WorkspaceResource](ctx, c, "templateversions/"+id.String()+"/resources")
}

func (c *Client) TemplateVersionVariables(ctx context.Context, id uuid.UUID) ([]TemplateVersionVariable, error) {
	return get[[]TemplateVersionVariable](ctx, c, "templateversions/"+id.String()+"/variables")
}

func (c *Client) TemplateVersionExternalAuth(ctx context.Context, id uuid.UUID) ([]TemplateVersionExternalAuth, error) {
	return get[[]TemplateVersionExternalAuth](ctx, c, "templateversions/"+id.String()+"/external-auth")
}

// TemplateVersionLogs returns the import's log lines with ids above after.
func (c *Client) TemplateVersionLogs(ctx context.Context, id uuid.UUID, after int64) ([]JobLog, error) {
	return get[[]JobLog](ctx, c, "templateversions/"+id.String()+"/logs?after="+strconv.FormatInt(after, 10))
}

func (c *Client) CreateDryRun(ctx context.Context, version uuid.UUID, req CreateDryRunRequest) (ProvisionerJob, error) {
	return create[ProvisionerJob](ctx, c, "templateversions/"+version.String()+"/dry-run", req)
}

func (c *Client) DryRun(ctx context.Context, version, job uuid.UUID) (ProvisionerJob, error) {
	return get[ProvisionerJob](ctx, c, "templateversions/"+version.String()+"/dry-run/"+job.String())
}

func (c *Client) DryRunResources(ctx context.Context, version, job uuid.UUID) ([]WorkspaceResource, error) {
	return get[[]WorkspaceResource](ctx, c, "templateversions/"+version.String()+"/dry-run/"+job.String()+"/resources")
}

func (c *Client) DryRunMatchedProvisioners(ctx context.Context, version, job uuid.UUID) (MatchedProvisioners, error) {
	return get[MatchedProvisioners](ctx, c,
		"templateversions/"+version.String()+"/dry-run/"+job.String()+"/matched-provisioners")
}

func (c *Client) CancelDryRun(ctx context.Context, version, job uuid.UUID) error {
	return c.do(ctx, http.MethodPatch, "templateversions/"+version.String()+"/dry-run/"+job.String()+"/cancel", nil,
		nil)
}

func (c *Client) EvaluateParameters(
	ctx context.Context, version uuid.UUID, req EvaluateParametersRequest,
) (EvaluateParametersResponse, error) {
	return send[EvaluateParametersResponse](ctx, c, http.MethodPost,
		"templateversions/"+version.String()+"/dynamic-parameters/evaluate", req)
}
