package host

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/coder/terraform-provider-coder/v2/provider"
	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/codermesh/codermesh/v2/internal/bootstrap"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/printable"
)

// passedOn lists the variables of our own environment that templates see: none of them is a secret of the server. It
// includes proxies because providers need them to reach their service.
var passedOn = []string{
	"PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
}

// baseEnv returns what every Terraform process of a job sees, except for the slot's own folders and the workspace's
// facts. workspaces is the folder of workspaces that are processes of this host, or "" for jobs that cannot reach it.
func baseEnv(extra []string, cliConfig, workspaces string) map[string]string {
	env := map[string]string{
		"PATH":               "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"CHECKPOINT_DISABLE": "1",
		"TF_CLI_CONFIG_FILE": cliConfig,
		"GOGC":               "200",
	}
	if workspaces != "" {
		env["CODER_WORKSPACES_DIR"] = workspaces
	}
	for _, name := range append(passedOn, extra...) {
		if value, ok := os.LookupEnv(name); ok {
			env[name] = value
		}
	}
	env = tfexec.CleanEnv(env)
	env["TF_DISABLE_PLUGIN_TLS"], env["TF_IN_AUTOMATION"] = "1", "1"
	return env
}

// Environ returns variables as a process gets them.
func Environ(env map[string]string) []string {
	all := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		all = append(all, name+"="+env[name])
	}
	return all
}

// Facts is what the provider learns about one job.
type Facts struct {
	Transition string // start, stop
	Metadata   *provisionerpb.Metadata
	Parameters []*provisionerpb.ParameterValue
	Previous   []*provisionerpb.ParameterValue // those of the build before
	Build      bool                            // a workspace build, where the template's name must be known
	Rehearsal  bool                            // of a claim
	// Which of the owner's secrets the source refers to.
	Token, Key, OIDCToken bool
}

// Variables with which a build gets its ID token.
const (
	idTokenVariable     = "CODER_ID_TOKEN"
	idTokenFileVariable = "CODER_ID_TOKEN_FILE"
	// IDTokenFile is the file in the job's working folder that holds the token, too.
	IDTokenFile = ".coder-id-token"
)

// addIDToken adds the build's ID token to the environment of its programs, if it has one.
func (f Facts) addIDToken(env map[string]string, work string) {
	if token := f.Metadata.GetIdToken(); token != "" {
		env[idTokenVariable], env[idTokenFileVariable] = token, filepath.Join(work, IDTokenFile)
	}
}

// public returns the facts that other programs of a template may see, too.
func (f Facts) public() map[string]string {
	m := f.Metadata
	env := map[string]string{
		"CODER_AGENT_URL":             m.GetAccessUrl(),
		"CODER_WORKSPACE_TRANSITION":  f.Transition,
		"CODER_WORKSPACE_NAME":        m.GetWorkspaceName(),
		"CODER_WORKSPACE_OWNER":       m.GetOwnerName(),
		"CODER_WORKSPACE_OWNER_EMAIL": m.GetOwnerEmail(),
		"CODER_WORKSPACE_OWNER_NAME":  cmp.Or(m.GetOwnerFullName(), m.GetOwnerName()),
		"CODER_WORKSPACE_ID":          printable.UUID(m.GetWorkspaceId()),
		"CODER_WORKSPACE_OWNER_ID":    printable.UUID(m.GetOwnerId()),
	}
	for name, value := range env {
		if value == "" {
			delete(env, name)
		}
	}
	return env
}

// worker returns the facts that only the provider sees.
func (f Facts) worker() (map[string]string, error) {
	m := f.Metadata
	env := f.public()
	groups, err := json.Marshal(append([]string{}, m.GetOwnerGroups()...))
	if err != nil {
		return nil, fmt.Errorf("encode groups: %w", err)
	}
	type role struct {
		Name  string `json:"name"`
		OrgID string `json:"org_id"`
	}
	roles := []role{}
	for _, name := range m.GetOwnerRoles() {
		name, org, _ := strings.Cut(name, ":")
		roles = append(roles, role{name, org})
	}
	roleText, err := json.Marshal(roles)
	if err != nil {
		return nil, fmt.Errorf("encode roles: %w", err)
	}
	optional := map[string]string{
		"CODER_WORKSPACE_OWNER_GROUPS":         string(groups),
		"CODER_WORKSPACE_OWNER_RBAC_ROLES":     string(roleText),
		"CODER_WORKSPACE_OWNER_LOGIN_TYPE":     m.GetOwnerLoginType(),
		"CODER_WORKSPACE_OWNER_SSH_PUBLIC_KEY": m.GetOwnerSshPublicKey(),
		"CODER_WORKSPACE_TEMPLATE_ID":          printable.UUID(m.GetTemplateId()),
		"CODER_WORKSPACE_TEMPLATE_NAME":        m.GetTemplateName(),
		"CODER_WORKSPACE_TEMPLATE_VERSION":     m.GetTemplateVersion(),
	}
	if f.Build {
		optional["CODER_WORKSPACE_BUILD_ID"] = printable.UUID(m.GetBuildId())
	}
	if m.GetPrebuild() {
		optional[provider.IsPrebuildEnvironmentVariable()] = "true"
	}
	if m.GetPrebuildClaim() {
		optional[provider.IsPrebuildClaimEnvironmentVariable()] = "true"
	}
	if f.Token {
		optional["CODER_WORKSPACE_OWNER_SESSION_TOKEN"] = m.GetOwnerSessionToken()
	}
	if f.Key {
		optional["CODER_WORKSPACE_OWNER_SSH_PRIVATE_KEY"] = m.GetOwnerSshPrivateKey()
	}
	if f.OIDCToken {
		optional["CODER_WORKSPACE_OWNER_OIDC_ACCESS_TOKEN"] = m.GetOwnerOidcAccessToken()
	}
	for name, value := range optional {
		if value != "" {
			env[name] = value
		}
	}
	for id, token := range m.GetExternalAuthTokens() {
		if strings.ContainsAny(id, "=\x00") || strings.ContainsRune(token, 0) {
			return nil, fmt.Errorf("the login %q cannot be passed on", id)
		}
		env[provider.ExternalAuthAccessTokenEnvironmentVariable(id)] = token
	}
	for _, p := range f.Parameters {
		env[provider.ParameterEnvironmentVariable(p.GetName())] = p.GetValue()
	}
	for _, p := range f.Previous {
		env[provider.ParameterEnvironmentVariablePrevious(p.GetName())] = p.GetValue()
	}
	for _, platform := range bootstrap.Platforms {
		system, arch, _ := strings.Cut(platform, "/")
		env["CODER_AGENT_SCRIPT_"+system+"_"+arch] = bootstrap.Script(system, arch)
	}
	env["PATH"] = os.Getenv("PATH")
	env["GOMAXPROCS"] = fmt.Sprint(min(2, runtime.NumCPU()))
	return env, nil
}
