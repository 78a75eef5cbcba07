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

// features are the names by which clients ask whether they may use something. Here they may use everything.
var features = []string{
	"access_control", "advanced_template_scheduling", "appearance", "audit_log", "browser_only", "connection_log",
	"control_shared_ports", "custom_roles", "external_provisioner_daemons", "external_token_encryption", "high_availability",
	"managed_agent_limit", "multiple_external_auth", "multiple_organizations", "scim", "task_batch_actions", "template_rbac",
	"user_limit", "user_role_management", "workspace_batch_actions", "workspace_external_agent", "workspace_prebuilds",
	"workspace_proxy",
}

// health answers as long as the process serves.
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
	for _, name := range features {
		all[name] = sdk.Feature{Entitlement: "entitled", Enabled: true}
	}
	return httpapi.Write(w, http.StatusOK, sdk.Entitlements{Features: all, HasLicense: true, RefreshedAt: time.Now()})
}

func (s *Service) experiments(w http.ResponseWriter, _ *http.Request) error {
	return httpapi.Write(w, http.StatusOK, sdk.List[string]{})
}

func (s *Service) sshConfig(w http.ResponseWriter, _ *http.Request) error {
	return httpapi.Write(w, http.StatusOK, sdk.SSHConfig{HostnamePrefix: "coder.", HostnameSuffix: "coder"})
}

func (s *Service) authMethods(w http.ResponseWriter, _ *http.Request) error {
	return httpapi.Write(w, http.StatusOK, sdk.AuthMethods{Password: sdk.AuthMethod{Enabled: true}})
}
