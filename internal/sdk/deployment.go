package sdk

import (
	"context"
	"io"
	"net/url"
	"time"
)

// BuildInfo describes the program that serves the API.
type BuildInfo struct {
	Version               string `json:"version"`
	ExternalURL           string `json:"external_url"`
	DashboardURL          string `json:"dashboard_url"`
	DeploymentID          string `json:"deployment_id"`
	AgentAPIVersion       string `json:"agent_api_version"`
	ProvisionerAPIVersion string `json:"provisioner_api_version"`
	UpgradeMessage        string `json:"upgrade_message"` // what clients say if their version differs; "" for their own words
	Telemetry             bool   `json:"telemetry"`
	WorkspaceProxy        bool   `json:"workspace_proxy"`
}

// SSHConfig contains what clients write into OpenSSH's configuration.
type SSHConfig struct {
	HostnamePrefix   string      `json:"hostname_prefix"` // "coder." unless the operator chose another
	HostnameSuffix   string      `json:"hostname_suffix"` // "coder" unless the operator chose another
	SSHConfigOptions Map[string] `json:"ssh_config_options"`
}

type Appearance struct {
	ApplicationName     string           `json:"application_name"`
	LogoURL             string           `json:"logo_url"`
	DocsURL             string           `json:"docs_url"`
	ServiceBanner       Banner           `json:"service_banner"`
	AnnouncementBanners List[Banner]     `json:"announcement_banners"`
	SupportLinks        List[LinkConfig] `json:"support_links"`
}

// UpdateAppearanceRequest replaces the whole appearance: what is left out has its default.
type UpdateAppearanceRequest struct {
	ApplicationName     string       `json:"application_name"`
	LogoURL             string       `json:"logo_url"` // a path on the server
	AnnouncementBanners List[Banner] `json:"announcement_banners"`
	// ServiceBanner is the one banner of older clients: it is used if AnnouncementBanners is missing.
	ServiceBanner *Banner `json:"service_banner,omitempty"`
}

type Banner struct {
	Enabled         bool   `json:"enabled"`
	Message         string `json:"message,omitempty"`
	BackgroundColor string `json:"background_color,omitempty"`
}

// LinkConfig is a link of the operator, to help for example.
type LinkConfig struct {
	Name   string `json:"name"`
	Target string `json:"target"` // an http, https or mailto URL
	Icon   string `json:"icon"`   // bug, chat, docs, star, or a path on the server; "" for none
}

// Values of a Feature's entitlement.
const (
	Entitled    = "entitled"
	NotEntitled = "not_entitled"
)

// Entitlements lists the features and whether they are available. No feature needs a license.
type Entitlements struct {
	Features         Map[Feature] `json:"features"`
	Warnings         List[string] `json:"warnings"`
	Errors           List[string] `json:"errors"`
	HasLicense       bool         `json:"has_license"`
	Trial            bool         `json:"trial"`
	RequireTelemetry bool         `json:"require_telemetry"`
	RefreshedAt      time.Time    `json:"refreshed_at"`
}

type Feature struct {
	Entitlement string `json:"entitlement"` // Entitled or NotEntitled
	Enabled     bool   `json:"enabled"`
	Limit       *int64 `json:"limit,omitempty"`
	Actual      *int64 `json:"actual,omitempty"`
}

func (c *Client) BuildInfo(ctx context.Context) (BuildInfo, error) {
	return get[BuildInfo](ctx, c, "buildinfo")
}

func (c *Client) SSHConfig(ctx context.Context) (SSHConfig, error) {
	return get[SSHConfig](ctx, c, "deployment/ssh")
}

// SSHGateway is where stock SSH clients reach workspaces.
type SSHGateway struct {
	Enabled     bool   `json:"enabled"`
	Address     string `json:"address"`     // HOST:PORT; "" if it is not enabled
	HostKey     string `json:"host_key"`    // the part of a line of known_hosts that follows the host
	Fingerprint string `json:"fingerprint"` // SHA256:…, as OpenSSH asks about it
	// MaxKeyLifetime is how long a registered key signs its user in after it was added, in nanoseconds. 0: as long as
	// its user chose.
	MaxKeyLifetime time.Duration `json:"max_key_lifetime"`
	// Regions are the gateways of region proxies that are connected.
	Regions List[SSHRegionGateway] `json:"regions"`
}

// SSHRegionGateway is where stock SSH clients reach workspaces at a region, with keys that their users have allowed
// there.
type SSHRegionGateway struct {
	Region      string `json:"region"`       // name of the region proxy
	DisplayName string `json:"display_name"` // for people
	Address     string `json:"address"`
	HostKey     string `json:"host_key"`
	Fingerprint string `json:"fingerprint"`
}

// SSHGateway returns where the SSH gateway is.
func (c *Client) SSHGateway(ctx context.Context) (SSHGateway, error) {
	return get[SSHGateway](ctx, c, "deployment/ssh-gateway")
}

func (c *Client) Appearance(ctx context.Context) (Appearance, error) {
	return get[Appearance](ctx, c, "appearance")
}

func (c *Client) Entitlements(ctx context.Context) (Entitlements, error) {
	return get[Entitlements](ctx, c, "entitlements")
}

// ProjectURL is where the program is developed.
const ProjectURL = "https://github.com/codermesh/codermesh"

// TasksResponse is the list of tasks. It is empty: this server has none.
type TasksResponse struct {
	Tasks List[any] `json:"tasks"`
	Count int       `json:"count"`
}

// HealthChecks has the sections of a HealthReport with their names in HealthSettings, which are those that other
// programs for this API know.
var HealthChecks = map[string]string{
	"access_url": "AccessURL", "database": "Database", "relay": "DERP", "provisioners": "ProvisionerDaemons", "servers": "Servers",
	"websocket": "Websocket", "workspace_proxy": "WorkspaceProxy",
}

// HealthSettings name the health checks that are dismissed: their findings do not count for the report's severity.
type HealthSettings struct {
	DismissedHealthchecks List[string] `json:"dismissed_healthchecks"` // AccessURL, Database, DERP, ProvisionerDaemons, Servers, Websocket, WorkspaceProxy
}

// PatchHealthSettingsRequest changes which health checks are dismissed, by the names that HealthSettings has or those
// of a report's sections. Checks in neither list stay as they are.
type PatchHealthSettingsRequest struct {
	Dismiss   []string `json:"dismiss,omitempty"`
	Undismiss []string `json:"undismiss,omitempty"`
}

// WorkspaceSharingSettings has the rule for sharing an organization's workspaces.
type WorkspaceSharingSettings struct {
	// SharingDisabled means that workspaces and their ports cannot be shared. Setting it ends all present sharing.
	SharingDisabled bool `json:"sharing_disabled"`
}

// AvailableExperiments is the list of experiments that can be enabled. It is empty: this server has none.
type AvailableExperiments struct {
	Safe List[string] `json:"safe"`
}

// UpdateCheck says which version is the newest. The server calls no other server, so it knows its own only.
type UpdateCheck struct {
	Current bool   `json:"current"`
	Version string `json:"version"`
	URL     string `json:"url"` // where to find others
}

// DeploymentConfig holds the settings of the server that answers, without the values of secrets.
type DeploymentConfig struct {
	Config  Map[any]               `json:"config"` // always empty: Options has every setting
	Options List[DeploymentOption] `json:"options"`
}

// DeploymentOption is one setting of the server.
type DeploymentOption struct {
	Name        string      `json:"name"` // its key in the file
	Description string      `json:"description"`
	Flag        string      `json:"flag"`
	Env         string      `json:"env"`
	YAML        string      `json:"yaml"` // the last part of the key
	Default     string      `json:"default"`
	Value       string      `json:"value"`        // "" for a secret
	ValueSource string      `json:"value_source"` // flag, env, yaml, or default
	Annotations Map[string] `json:"annotations"`  // "secret" is "true" for a secret
}

// DeploymentStats counts what exists in the deployment.
type DeploymentStats struct {
	CollectedAt  time.Time                `json:"collected_at"`
	NextUpdateAt time.Time                `json:"next_update_at"`
	Workspaces   WorkspaceDeploymentStats `json:"workspaces"`
	SessionCount SessionCount             `json:"session_count"`
}

// SessionCount counts the current connections to all workspaces, by what they are for.
type SessionCount struct {
	VSCode          int64 `json:"vscode"`
	SSH             int64 `json:"ssh"`
	JetBrains       int64 `json:"jetbrains"`
	ReconnectingPTY int64 `json:"reconnecting_pty"`
}

// WorkspaceDeploymentStats counts workspaces by the state of their latest build, and describes the connected ones.
type WorkspaceDeploymentStats struct {
	Pending  int64 `json:"pending"`
	Building int64 `json:"building"`
	Running  int64 `json:"running"`
	Failed   int64 `json:"failed"`
	Stopped  int64 `json:"stopped"`

	ConnectionLatencyMS ConnectionLatency `json:"connection_latency_ms"`
	RxBytes             int64             `json:"rx_bytes"` // into connected workspaces since their agents' processes began
	TxBytes             int64             `json:"tx_bytes"`
}

// ConnectionLatency is the round trip of connected agents to their relays in milliseconds: the median, and what one in
// twenty exceeds. Both are 0 if no agent has measured it.
type ConnectionLatency struct {
	P50 float64 `json:"P50"`
	P95 float64 `json:"P95"`
}

// DeploymentConfig returns the settings of the server. Only owners of the deployment may read them.
func (c *Client) DeploymentConfig(ctx context.Context) (DeploymentConfig, error) {
	return get[DeploymentConfig](ctx, c, "deployment/config")
}

// DeploymentStats returns counts of the deployment. Only its owners may read them.
func (c *Client) DeploymentStats(ctx context.Context) (DeploymentStats, error) {
	return get[DeploymentStats](ctx, c, "deployment/stats")
}

// CPUProfile is the profile of what a server's processor does.
const CPUProfile = "profile"

// Profiles are the other profiles that a server has.
var Profiles = []string{"allocs", "block", "goroutine", "heap", "mutex", "threadcreate"}

// Profile writes a profile of the server process to w. That of the processor takes ten seconds.
func (c *Client) Profile(ctx context.Context, name string, w io.Writer) error {
	return c.download(ctx, "debug/pprof/"+url.PathEscape(name), w)
}
