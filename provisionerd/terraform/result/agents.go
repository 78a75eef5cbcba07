package result

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// The attributes types hold what is read of the coder provider's objects. TestReference checks that nothing is left
// out.

type agentAttributes struct {
	ID                    string             `json:"id"`
	Token                 string             `json:"token"`
	OS                    string             `json:"os"`
	Arch                  string             `json:"arch"`
	Auth                  string             `json:"auth"`
	APIKeyScope           string             `json:"api_key_scope"`
	Dir                   string             `json:"dir"`
	Env                   map[string]*string `json:"env"`
	StartupScript         string             `json:"startup_script"`
	ShutdownScript        string             `json:"shutdown_script"`
	StartupScriptBehavior string             `json:"startup_script_behavior"`
	MOTDFile              string             `json:"motd_file"`
	TroubleshootingURL    string             `json:"troubleshooting_url"`
	ConnectionTimeout     int32              `json:"connection_timeout"`
	Order                 int32              `json:"order"`
	DisplayApps           []map[string]bool  `json:"display_apps"`
	Metadata              []struct {
		Key         string `json:"key"`
		DisplayName string `json:"display_name"`
		Script      string `json:"script"`
		Interval    int64  `json:"interval"`
		Timeout     int64  `json:"timeout"`
		Order       int32  `json:"order"`
	} `json:"metadata"`
	ResourcesMonitoring []struct {
		Memory []struct {
			Enabled   bool  `json:"enabled"`
			Threshold int32 `json:"threshold"`
		} `json:"memory"`
		Volume []struct {
			Path      string `json:"path"`
			Enabled   bool   `json:"enabled"`
			Threshold int32  `json:"threshold"`
		} `json:"volume"`
	} `json:"resources_monitoring"`
}

// maxVolumes bounds the volumes that an agent can monitor.
const maxVolumes = 16

// displayApps lists the built-in apps that a coder_agent can show.
var displayApps = []string{"vscode", "vscode_insiders", "web_terminal", "ssh_helper", "port_forwarding_helper"}

// newAgent reads a coder_agent. In a plan it has neither an id nor a token.
func newAgent(n *Node) (*provisionerpb.Agent, error) {
	var attrs agentAttributes
	if err := json.Unmarshal(n.attrs, &attrs); err != nil {
		return nil, fmt.Errorf("read %s: %w", n.address(), err)
	}
	a := &provisionerpb.Agent{
		Name: n.name, Token: attrs.Token, Os: attrs.OS, Arch: attrs.Arch, Auth: attrs.Auth, Directory: attrs.Dir,
		StartupScriptBehavior: attrs.StartupScriptBehavior, MotdFile: attrs.MOTDFile,
		NoUserData:         attrs.APIKeyScope == "no_user_data",
		TroubleshootingUrl: attrs.TroubleshootingURL, ConnectionTimeoutSeconds: attrs.ConnectionTimeout,
		Order: attrs.Order,
	}
	if attrs.ID != "" {
		id, err := uuid.Parse(attrs.ID)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", n.address(), errAgentID)
		}
		a.Id = id[:]
	}
	for name, value := range attrs.Env {
		if a.Env == nil {
			a.Env = map[string]string{}
		}
		if value != nil {
			a.Env[name] = *value
		}
	}
	shown := map[string]bool{"vscode": true, "web_terminal": true, "ssh_helper": true, "port_forwarding_helper": true}
	if len(attrs.DisplayApps) > 0 {
		shown = attrs.DisplayApps[0]
	}
	for _, name := range displayApps {
		if shown[name] {
			a.DisplayApps = append(a.DisplayApps, name)
		}
	}
	for _, m := range attrs.Metadata {
		a.Metadata = append(a.Metadata, &provisionerpb.AgentMetadata{
			Key: m.Key, DisplayName: m.DisplayName, Script: m.Script, Interval: m.Interval, Timeout: m.Timeout,
			Order: m.Order,
		})
	}
	slices.SortStableFunc(a.Metadata, func(x, y *provisionerpb.AgentMetadata) int {
		return cmp.Or(cmp.Compare(x.Order, y.Order), cmp.Compare(x.Key, y.Key))
	})
	if err := attrs.addMonitors(a); err != nil {
		return nil, fmt.Errorf("read %s: %w", n.address(), err)
	}
	if attrs.StartupScript != "" {
		a.Scripts = append(a.Scripts, &provisionerpb.Script{
			Id: scriptID(attrs.ID, "startup"), DisplayName: "Startup Script", Script: attrs.StartupScript,
			LogPath: "coder-startup-script.log", RunOnStart: true,
			StartBlocksLogin: attrs.StartupScriptBehavior == "blocking",
		})
	}
	if attrs.ShutdownScript != "" {
		a.Scripts = append(a.Scripts, &provisionerpb.Script{
			Id: scriptID(attrs.ID, "shutdown"), DisplayName: "Shutdown Script", Script: attrs.ShutdownScript,
			LogPath: "coder-shutdown-script.log", RunOnStop: true,
		})
	}
	return a, nil
}

// addMonitors adds what resources_monitoring enables. The provider checks the thresholds, and that paths are absolute.
func (attrs *agentAttributes) addMonitors(a *provisionerpb.Agent) error {
	volumes := 0
	for _, r := range attrs.ResourcesMonitoring {
		for _, m := range r.Memory {
			if m.Enabled {
				a.Monitors = append(a.Monitors, &provisionerpb.AgentMonitor{ThresholdPercent: m.Threshold})
			}
		}
		for _, v := range r.Volume {
			if len(v.Path) > maxPath || strings.ContainsFunc(v.Path, unicode.IsControl) {
				return fmt.Errorf("the path of a volume in resources_monitoring must have at most %d bytes, and no "+
					"control characters", maxPath)
			}
			if !v.Enabled {
				continue
			}
			if volumes++; volumes > maxVolumes {
				return fmt.Errorf("resources_monitoring has more than %d volumes: remove or disable some", maxVolumes)
			}
			a.Monitors = append(a.Monitors, &provisionerpb.AgentMonitor{Volume: v.Path, ThresholdPercent: v.Threshold})
		}
	}
	slices.SortStableFunc(a.Monitors,
		func(x, y *provisionerpb.AgentMonitor) int { return cmp.Compare(x.GetVolume(), y.GetVolume()) })
	return nil
}

type devcontainerAttributes struct {
	ID              string `json:"id"`
	WorkspaceFolder string `json:"workspace_folder"`
	ConfigPath      string `json:"config_path"`
	SubagentID      string `json:"subagent_id"`
}

// newDevcontainer reads a coder_devcontainer of an agent. The agent in it has the parent's rights and its display apps.
// In a plan there are no ids.
func newDevcontainer(n *Node, parent *provisionerpb.Agent) (*provisionerpb.Devcontainer, error) {
	var attrs devcontainerAttributes
	if err := json.Unmarshal(n.attrs, &attrs); err != nil {
		return nil, fmt.Errorf("read %s: %w", n.address(), err)
	}
	for name, value := range map[string]string{"workspace_folder": attrs.WorkspaceFolder,
		"config_path": attrs.ConfigPath} {
		if len(value) > maxPath || strings.ContainsFunc(value, unicode.IsControl) {
			return nil, fmt.Errorf("read %s: %s must be a path of at most %d bytes, without control characters",
				n.address(), name, maxPath)
		}
	}
	inside := &provisionerpb.Agent{
		Name: n.name, Os: parent.Os, Arch: parent.Arch, NoUserData: parent.NoUserData,
		TroubleshootingUrl: parent.TroubleshootingUrl,
		Order:              parent.Order, DisplayApps: slices.Clone(parent.DisplayApps),
		StartupScriptBehavior: "non-blocking",
	}
	c := &provisionerpb.Devcontainer{WorkspaceFolder: attrs.WorkspaceFolder, ConfigPath: attrs.ConfigPath,
		Agent: inside}
	if attrs.ID == "" {
		return c, nil
	}
	if c.Id = idBytes(attrs.ID); c.Id == nil {
		return nil, fmt.Errorf("read %s: %w", n.address(), errAgentID)
	}
	if inside.Id = idBytes(attrs.SubagentID); inside.Id == nil {
		// The state is of a provider that had no such attribute.
		inside.Id = scriptID(attrs.ID, "subagent")
	}
	return c, nil
}

const maxPath = 1024 // bytes

// scriptID returns the id of something that is part of another object: the same id for the same object.
func scriptID(agentID, which string) []byte {
	id := uuid.NewSHA1(agentNamespace, []byte(agentID+"/"+which))
	return id[:]
}

type appAttributes struct {
	ID          string `json:"id"`
	Slug        string `json:"slug"`
	DisplayName string `json:"display_name"`
	URL         string `json:"url"`
	Icon        string `json:"icon"`
	Command     string `json:"command"`
	External    bool   `json:"external"`
	Subdomain   bool   `json:"subdomain"`
	Share       string `json:"share"`
	Order       int32  `json:"order"`
	Hidden      bool   `json:"hidden"`
	Group       string `json:"group"`
	OpenIn      string `json:"open_in"`
	Tooltip     string `json:"tooltip"`
	Healthcheck []struct {
		URL       string `json:"url"`
		Interval  int32  `json:"interval"`
		Threshold int32  `json:"threshold"`
	} `json:"healthcheck"`
}

func addApp(n *Node, a *provisionerpb.Agent, place string) error {
	var attrs appAttributes
	if err := json.Unmarshal(n.attrs, &attrs); err != nil {
		return err
	}
	app := &provisionerpb.App{
		Id: idBytes(attrs.ID), Slug: attrs.Slug, DisplayName: attrs.DisplayName, Url: attrs.URL, Icon: attrs.Icon,
		Command:  attrs.Command,
		External: attrs.External, Subdomain: attrs.Subdomain, Share: attrs.Share, Order: attrs.Order,
		Hidden: attrs.Hidden,
		Group:  attrs.Group, OpenIn: attrs.OpenIn, Tooltip: attrs.Tooltip, Place: place,
	}
	if len(attrs.Healthcheck) > 0 {
		h := attrs.Healthcheck[0]
		app.HealthcheckUrl, app.HealthcheckInterval, app.HealthcheckThreshold = h.URL, h.Interval, h.Threshold
	}
	a.Apps = append(a.Apps, app)
	return nil
}

type scriptAttributes struct {
	ID               string `json:"id"`
	DisplayName      string `json:"display_name"`
	Icon             string `json:"icon"`
	Script           string `json:"script"`
	Cron             string `json:"cron"`
	StartBlocksLogin bool   `json:"start_blocks_login"`
	RunOnStart       bool   `json:"run_on_start"`
	RunOnStop        bool   `json:"run_on_stop"`
	Timeout          int32  `json:"timeout"`
	LogPath          string `json:"log_path"`
}

func addScript(n *Node, a *provisionerpb.Agent) error {
	var attrs scriptAttributes
	if err := json.Unmarshal(n.attrs, &attrs); err != nil {
		return err
	}
	a.Scripts = append(a.Scripts, &provisionerpb.Script{
		Id: idBytes(attrs.ID), DisplayName: attrs.DisplayName, Icon: attrs.Icon, Script: attrs.Script, Cron: attrs.Cron,
		StartBlocksLogin: attrs.StartBlocksLogin, RunOnStart: attrs.RunOnStart, RunOnStop: attrs.RunOnStop,
		TimeoutSeconds: attrs.Timeout, LogPath: attrs.LogPath,
	})
	return nil
}

// idBytes returns the 16 bytes of a UUID, or nil for anything else: ids are unknown in a plan.
func idBytes(text string) []byte {
	id, err := uuid.Parse(text)
	if err != nil {
		return nil
	}
	return id[:]
}
