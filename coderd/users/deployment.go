package users

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/internal/buildinfo"
	"github.com/codermesh/codermesh/internal/sdk"
)

// features lists the names by which clients ask whether a feature exists here and may be used. If the answer is yes, a client
// uses the feature without its own explanation, and fails with our message or, worse, assumes that it worked.
var features = map[string]bool{
	"access_control":               true, // a template may require its active version
	"advanced_template_scheduling": true,
	"appearance":                   false,
	"audit_log":                    true,
	"browser_only":                 false,
	"connection_log":               true,
	// Ports are always private to their owner. Without this feature, clients assume the level public, and refuse to keep the
	// current one.
	"control_shared_ports":         true,
	"custom_roles":                 false,
	"external_provisioner_daemons": true,
	"external_token_encryption":    true,
	"high_availability":            false,
	"managed_agent_limit":          false,
	"multiple_external_auth":       true,
	"multiple_organizations":       false,
	"scim":                         true,
	"task_batch_actions":           false,
	"template_rbac":                false,
	"user_limit":                   false,
	"user_role_management":         false,
	"workspace_batch_actions":      false,
	"workspace_external_agent":     false,
	"workspace_prebuilds":          false,
	"workspace_proxy":              false,
}

// health answers as long as the process serves requests.
func (s *Service) health(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := io.WriteString(w, "OK")
	return err
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
		Version: buildinfo.Version(), ExternalURL: "https://github.com/codermesh/codermesh", DashboardURL: url, DeploymentID: string(id),
		AgentAPIVersion: "1.0", ProvisionerAPIVersion: "1.0",
	})
}

func (s *Service) appearance(w http.ResponseWriter, _ *http.Request) error {
	return httpapi.Write(w, http.StatusOK, sdk.Appearance{ApplicationName: "codermesh", DocsURL: "https://github.com/codermesh/codermesh/tree/main/docs"})
}

func (s *Service) entitlements(w http.ResponseWriter, _ *http.Request) error {
	all := sdk.Map[sdk.Feature]{}
	for name, exists := range features {
		all[name] = sdk.Feature{Entitlement: sdk.NotEntitled}
		if exists {
			all[name] = sdk.Feature{Entitlement: sdk.Entitled, Enabled: true}
		}
	}
	return httpapi.Write(w, http.StatusOK, sdk.Entitlements{Features: all, HasLicense: true, RefreshedAt: time.Now()})
}

func (s *Service) experiments(w http.ResponseWriter, _ *http.Request) error {
	return httpapi.Write(w, http.StatusOK, sdk.List[string]{})
}

func (s *Service) sshConfig(w http.ResponseWriter, _ *http.Request) error {
	return httpapi.Write(w, http.StatusOK, sdk.SSHConfig{HostnamePrefix: "coder.", HostnameSuffix: "coder"})
}
