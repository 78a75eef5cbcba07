package users

import (
	"fmt"
	"net/http"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// features lists the names by which clients ask whether a feature exists here and may be used. If the answer is yes, a
// client uses the feature without its own explanation, and fails with our message or, worse, assumes that it worked.
var features = map[string]bool{
	"access_control":               true, // a template may require its active version
	"advanced_template_scheduling": true,
	"appearance":                   true,
	"audit_log":                    true,
	"browser_only":                 false, // unless the operator says so
	"connection_log":               true,
	"control_shared_ports":         true,
	"custom_roles":                 true,
	"external_provisioner_daemons": true,
	"external_token_encryption":    true,
	"high_availability":            true, // any number of servers on one database
	"managed_agent_limit":          false,
	"multiple_external_auth":       true,
	"multiple_organizations":       true,
	"scim":                         true,
	"task_batch_actions":           false,
	"template_rbac":                true,
	"user_limit":                   false,
	"user_role_management":         true,
	"workspace_batch_actions":      true,
	"workspace_external_agent":     true,
	"workspace_prebuilds":          true,
	"workspace_proxy":              true, // relays of regions; apps are served by the servers
}

func (s *Service) ping(w http.ResponseWriter, _ *http.Request) error {
	return httpapi.Write(w, http.StatusOK, sdk.Response{Message: "codermesh " + buildinfo.Version()})
}

func (s *Service) buildInfo(w http.ResponseWriter, r *http.Request) error {
	id, err := s.db.GetSetting(r.Context(), "deployment_id")
	if err != nil {
		return fmt.Errorf("read deployment id: %w", err)
	}
	var url string
	if s.accessURL != nil {
		url = s.accessURL.String()
	}
	return httpapi.Write(w, http.StatusOK, sdk.BuildInfo{
		Version: buildinfo.Version(), ExternalURL: sdk.ProjectURL, DashboardURL: url, DeploymentID: string(id),
		AgentAPIVersion: "1.0", ProvisionerAPIVersion: "1.0", UpgradeMessage: s.presentation.UpgradeMessage,
	})
}

func (s *Service) entitlements(w http.ResponseWriter, _ *http.Request) error {
	all := sdk.Map[sdk.Feature]{}
	for name, exists := range features {
		all[name] = sdk.Feature{Entitlement: sdk.NotEntitled}
		if exists || name == "browser_only" && s.presentation.BrowserOnly {
			all[name] = sdk.Feature{Entitlement: sdk.Entitled, Enabled: true}
		}
	}
	return httpapi.Write(w, http.StatusOK, sdk.Entitlements{Features: all, HasLicense: true, RefreshedAt: time.Now()})
}

func (s *Service) experiments(w http.ResponseWriter, _ *http.Request) error {
	return httpapi.Write(w, http.StatusOK, sdk.List[string]{})
}

func (s *Service) sshConfig(w http.ResponseWriter, _ *http.Request) error {
	return httpapi.Write(w, http.StatusOK, s.presentation.SSHConfig())
}
