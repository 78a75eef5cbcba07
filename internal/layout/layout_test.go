// Package layout_test enforces the import law, which defines what each part of the program may import, and checks the documentation.
package layout_test

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/codermesh/codermesh/v2"

// rule lists what the packages of one row may import from our own code: the named rows, or, for a name followed by "/...", everything below
// it. Packages may always import their own row and the leaves below internal.
type rule struct {
	imports []string
	tests   []string // additional imports of their tests
}

// law has a rule for every package: the rule of the longest matching row.
var law = map[string]rule{
	"internal":     {},
	"internal/sdk": {},

	"tailnet":              {},
	"coordinator":          {imports: []string{"coordinator/peering", "coordinator/protocol", "tailnet"}, tests: []string{"coordinator/client"}},
	"coordinator/client":   {imports: []string{"coordinator/protocol", "tailnet"}},
	"coordinator/peering":  {imports: []string{"coordinator/protocol", "tailnet"}},
	"coordinator/protocol": {imports: []string{"tailnet"}},

	"appproxy": {},
	"region":   {imports: []string{"appproxy", "coordinator/protocol", "meshclient", "sshmux", "tailnet"}, tests: []string{"agent", "coderd/..."}},

	"sshmux":     {},
	"meshclient": {imports: []string{"coordinator/client", "coordinator/protocol", "tailnet"}},

	"agent":         {imports: []string{"agent/agentpb", "tailnet", "coordinator/client", "coordinator/protocol", "sshmux"}, tests: []string{"coordinator"}},
	"agent/agentpb": {},

	"provisionerd": {
		imports: []string{"provisionerd/job", "provisionerd/provisionerpb", "provisionerd/tfstate", "tailnet", "coordinator/client", "coordinator/protocol"},
	},
	"provisionerd/provisionerpb": {},
	"provisionerd/tfstate":       {imports: []string{"provisionerd/provisionerpb"}},
	"provisionerd/job":           {imports: []string{"provisionerd/provisionerpb"}},
	"provisionerd/echo":          {imports: []string{"provisionerd/job", "provisionerd/provisionerpb", "provisionerd/tfstate"}},
	"provisionerd/terraform": {
		imports: []string{
			"provisionerd/job", "provisionerd/provisionerpb", "provisionerd/terraform/host", "provisionerd/terraform/printable",
			"provisionerd/terraform/result", "provisionerd/terraform/sandbox", "provisionerd/terraform/template", "provisionerd/tfstate",
		},
	},
	"provisionerd/terraform/host": {
		imports: []string{"provisionerd/provisionerpb", "provisionerd/terraform/printable", "provisionerd/terraform/sandbox"},
	},
	"provisionerd/terraform/result": {
		imports: []string{
			"provisionerd/job", "provisionerd/provisionerpb", "provisionerd/terraform/printable", "provisionerd/terraform/template",
			"provisionerd/tfstate",
		},
	},
	"provisionerd/terraform/printable": {},
	"provisionerd/terraform/sandbox":   {},
	"provisionerd/terraform/template":  {imports: []string{"provisionerd/provisionerpb"}},

	// The server, from the ground up.
	"coderd/database":           {imports: []string{"coderd/rbac"}}, // stored sharing and powers
	"coderd/database/rdsauth":   {tests: []string{"coderd/database"}},
	"coderd/rbac":               {},
	"coderd/jobtags":            {},
	"coderd/policy":             {},
	"coderd/certcache":          {imports: []string{"coderd/database", "coderd/keyring"}}, // ACME's shared certificates
	"coderd/hostkeys":           {imports: []string{"coderd/database", "coderd/keyring"}},
	"coderd/slim":               {},
	"coderd/templates/tagexpr":  {},
	"coderd/templates/formdeps": {},
	"coderd/templates/tfvars":   {},
	"coderd/httpapi":            {imports: []string{"coderd/rbac"}},
	"coderd/audit":              {imports: []string{"coderd/database", "coderd/httpapi", "coderd/pubsub", "coderd/rbac"}},
	"coderd/lookup":             {imports: []string{"coderd/database", "coderd/rbac"}},
	"coderd/pubsub":             {imports: []string{"coderd/database"}},
	"coderd/mail":               {},
	"coderd/notifications":      {imports: []string{"coderd/audit", "coderd/database", "coderd/httpapi", "coderd/mail", "coderd/pubsub", "coderd/rbac"}},
	"coderd/signed":             {imports: []string{"coderd/database"}},
	"coderd/keyring":            {imports: []string{"coderd/audit", "coderd/database"}},
	"coderd/metrics":            {imports: []string{"coderd/database", "coderd/httpapi", "coderd/policy", "coderd/rbac"}},
	"coderd/backup":             {imports: []string{"coderd/database", "coderd/keyring"}},
	"coderd/replicas":           {imports: []string{"coderd/database", "coderd/pubsub"}},
	"coderd/regions":            {imports: []string{"coderd/audit", "coderd/database", "coderd/httpapi", "coderd/pubsub", "coderd/rbac", "region", "tailnet"}},
	"coderd/notices":            {imports: []string{"coderd/httpapi", "coderd/rbac"}},
	"coderd/reference":          {imports: []string{"coderd/httpapi", "coderd/rbac"}},
	"coderd/retention":          {imports: []string{"coderd/database"}},
	"coderd/events":             {imports: []string{"coderd/httpapi", "coderd/pubsub", "coderd/rbac"}},
	"coderd/health":             {imports: []string{"coderd/audit", "coderd/database", "coderd/httpapi", "coderd/rbac", "coderd/signed", "tailnet"}},
	"coderd/users":              {imports: []string{"coderd/audit", "coderd/database", "coderd/httpapi", "coderd/lookup", "coderd/notifications", "coderd/policy", "coderd/rbac", "coderd/keyring", "coderd/signed"}},
	"coderd/groups":             {imports: []string{"coderd/audit", "coderd/database", "coderd/httpapi", "coderd/lookup", "coderd/rbac"}},
	"coderd/idpsync":            {imports: []string{"coderd/audit", "coderd/database", "coderd/groups", "coderd/httpapi", "coderd/lookup", "coderd/rbac"}},
	"coderd/redirect":           {imports: []string{"coderd/signed"}},
	"coderd/extauth":            {imports: []string{"coderd/audit", "coderd/database", "coderd/httpapi", "coderd/rbac", "coderd/redirect", "coderd/signed", "coderd/keyring"}},
	"coderd/secrets":            {imports: []string{"coderd/audit", "coderd/database", "coderd/httpapi", "coderd/lookup", "coderd/rbac", "coderd/keyring"}},
	"coderd/sshca":              {imports: []string{"coderd/audit", "coderd/database", "coderd/hostkeys", "coderd/httpapi", "coderd/rbac"}, tests: []string{"coderd/keyring"}},
	"coderd/webhooks":           {imports: []string{"coderd/audit", "coderd/database", "coderd/httpapi", "coderd/keyring", "coderd/notifications", "coderd/pubsub", "coderd/rbac"}},
	"coderd/identity":           {imports: []string{"coderd/audit", "coderd/database", "coderd/httpapi", "coderd/keyring", "coderd/rbac"}, tests: []string{"coderd/coderdtest", "provisionerd/provisionerpb", "agent/agentpb"}},
	"coderd/sshkeys":            {imports: []string{"coderd/audit", "coderd/database", "coderd/httpapi", "coderd/lookup", "coderd/rbac"}},
	"coderd/devices":            {imports: []string{"coderd/audit", "coderd/database", "coderd/httpapi", "coderd/lookup", "coderd/notifications", "coderd/rbac", "coderd/regions", "tailnet"}},
	"coderd/consents": {
		imports: []string{"coderd/audit", "coderd/database", "coderd/httpapi", "coderd/rbac"},
		tests:   []string{"agent/agentpb", "coderd/...", "provisionerd/provisionerpb"},
	},
	"coderd/signin": {
		imports: []string{"coderd/audit", "coderd/idpsync", "coderd/database", "coderd/extauth", "coderd/httpapi", "coderd/rbac", "coderd/redirect", "coderd/signed", "coderd/users"},
	},
	"coderd/organizations": {imports: []string{"coderd/audit", "coderd/database", "coderd/httpapi", "coderd/lookup", "coderd/notifications", "coderd/rbac", "coderd/users"}},
	"coderd/provisioners":  {imports: []string{"coderd/audit", "coderd/database", "coderd/httpapi", "coderd/jobtags", "coderd/lookup", "coderd/pubsub", "coderd/rbac"}},
	"coderd/mesh": {
		imports: []string{"coderd/httpapi", "coderd/jobtags", "coderd/rbac", "coderd/signed", "coordinator", "coordinator/client", "coordinator/protocol", "tailnet"},
		tests:   []string{"agent/agentpb"},
	},
	"coderd/apps":       {imports: []string{"appproxy", "coderd/audit", "coderd/database", "coderd/httpapi", "coderd/lookup", "coderd/rbac", "coderd/regions", "coderd/signed", "region"}},
	"coderd/sshgateway": {imports: []string{"coderd/audit", "coderd/httpapi", "coderd/rbac", "coderd/regions", "coderd/signed", "coderd/sshca", "coderd/sshkeys", "region", "sshmux"}, tests: []string{"coderd/hostkeys"}},
	"coderd/wggateway":  {imports: []string{"coderd/audit", "coderd/httpapi", "coderd/rbac", "coderd/regions", "region", "tailnet"}, tests: []string{"coderd/..."}},
	"coderd/jobs": {
		imports: []string{"coderd/audit", "coderd/database", "coderd/httpapi", "coderd/jobtags", "coderd/lookup", "coderd/pubsub", "coderd/rbac", "provisionerd/provisionerpb"},
		tests:   []string{"provisionerd", "provisionerd/echo", "provisionerd/job"},
	},
	"coderd/agents": {
		imports: []string{
			"coderd/audit", "coderd/database", "coderd/extauth", "coderd/httpapi", "coderd/identity", "coderd/notifications", "coderd/pubsub", "coderd/rbac", "coderd/keyring",
			"agent/agentpb", "provisionerd/provisionerpb", "sshmux", "tailnet",
		},
		tests: []string{"coderd/signed"},
	},
	"coderd/templates": {
		imports: []string{
			"coderd/agents", "coderd/audit", "coderd/database", "coderd/extauth", "coderd/groups", "coderd/httpapi", "coderd/identity", "coderd/jobs", "coderd/jobtags", "coderd/lookup", "coderd/notifications", "coderd/rbac",
			"coderd/policy", "coderd/templates/formdeps", "coderd/templates/tagexpr", "coderd/templates/tfvars", "provisionerd/provisionerpb",
		},
	},
	"coderd/workspaces": {
		imports: []string{
			"coderd/agents", "coderd/audit", "coderd/consents", "coderd/database", "coderd/extauth", "coderd/groups", "coderd/httpapi", "coderd/identity", "coderd/jobs", "coderd/jobtags", "coderd/lookup", "coderd/notifications", "coderd/pubsub", "coderd/rbac",
			"coderd/policy", "coderd/keyring", "coderd/templates", "coderd/users", "provisionerd/provisionerpb", "provisionerd/tfstate",
		},
	},
	"coderd/coderdtest": {imports: []string{"coderd/...", "coordinator/client", "coordinator/protocol", "provisionerd", "provisionerd/echo", "provisionerd/provisionerpb", "tailnet"}},
	"coderd": {
		imports: []string{"appproxy", "coderd/...", "agent/agentpb", "provisionerd", "provisionerd/job", "site"},
		tests:   []string{"coordinator/client", "coordinator/protocol", "tailnet", "provisionerd/echo", "region"},
	},

	// The command line, from the ground up: what commands share, the global flags, the commands by purpose.
	"cmd/coder/cli/exit":         {},
	"cmd/coder/cli/browser":      {},
	"cmd/coder/cli/config":       {},
	"cmd/coder/cli/output":       {},
	"cmd/coder/cli/flags":        {imports: []string{"cmd/coder/cli/exit"}},
	"cmd/coder/cli/organization": {imports: []string{"cmd/coder/cli/exit", "cmd/coder/cli/flags"}},
	"cmd/coder/cli/follow":       {imports: []string{"cmd/coder/cli/exit"}},
	"cmd/coder/cli/form":         {imports: []string{"cmd/coder/cli/flags"}},
	"cmd/coder/cli/forward":      {imports: []string{"cmd/coder/cli/exit"}},
	"cmd/coder/cli/target": {
		imports: []string{"cmd/coder/cli/exit", "cmd/coder/cli/follow", "cmd/coder/cli/output", "meshclient"},
		tests:   []string{"coordinator", "coordinator/client", "coordinator/protocol", "tailnet"},
	},
	"cmd/coder/cli/session": {
		imports: []string{"cmd/coder/cli/config", "cmd/coder/cli/exit", "cmd/coder/cli/forward", "cmd/coder/cli/target", "sshmux", "tailnet"},
		tests:   []string{"meshclient"},
	},
	"cmd/coder/cli/global":   {imports: []string{"cmd/coder/cli/config", "cmd/coder/cli/exit", "cmd/coder/cli/flags", "cmd/coder/cli/follow"}},
	"cmd/coder/cli/complete": {imports: []string{"cmd/coder/cli/config", "cmd/coder/cli/flags", "cmd/coder/cli/global", "cmd/coder/cli/organization"}},
	"cmd/coder/cli/account": {
		imports: []string{"cmd/coder/cli/browser", "cmd/coder/cli/config", "cmd/coder/cli/exit", "cmd/coder/cli/flags", "cmd/coder/cli/global", "cmd/coder/cli/organization", "cmd/coder/cli/output"},
	},
	"cmd/coder/cli/provisioners": {imports: []string{"cmd/coder/cli/exit", "cmd/coder/cli/flags", "cmd/coder/cli/global", "cmd/coder/cli/organization", "cmd/coder/cli/output", "cmd/coder/cli/target"}},
	"cmd/coder/cli/inside": {
		imports: []string{"agent", "cmd/coder/cli/exit", "cmd/coder/cli/flags", "cmd/coder/cli/global", "cmd/coder/cli/output"},
	},
	"cmd/coder/cli/templates": {
		imports: []string{
			"cmd/coder/cli/exit", "cmd/coder/cli/flags", "cmd/coder/cli/follow", "cmd/coder/cli/form", "cmd/coder/cli/global", "cmd/coder/cli/organization", "cmd/coder/cli/output",
		},
	},
	"cmd/coder/cli/workspaces": {
		imports: []string{
			"cmd/coder/cli/browser", "cmd/coder/cli/exit", "cmd/coder/cli/flags", "cmd/coder/cli/follow", "cmd/coder/cli/form", "cmd/coder/cli/global", "cmd/coder/cli/organization", "cmd/coder/cli/output", "cmd/coder/cli/target",
		},
	},
	"cmd/coder/cli/laptop": {imports: []string{"meshclient", "tailnet"}},
	"cmd/coder/cli/diagnose": {
		imports: []string{"cmd/coder/cli/exit", "cmd/coder/cli/global", "cmd/coder/cli/output", "cmd/coder/cli/target", "meshclient", "tailnet"},
	},
	"cmd/coder/cli/connect": {
		imports: []string{
			"agent", "cmd/coder/cli/config", "cmd/coder/cli/exit", "cmd/coder/cli/flags", "cmd/coder/cli/forward", "cmd/coder/cli/global",
			"cmd/coder/cli/laptop", "cmd/coder/cli/output", "cmd/coder/cli/session", "cmd/coder/cli/target", "meshclient", "sshmux", "tailnet",
		},
	},
	"cmd/coder/cli": {imports: []string{"agent", "cmd/coder/cli/..."}},

	"cmd/coder/daemon":  {},
	"cmd/coder/wsproxy": {imports: []string{"appproxy", "cmd/coder/cli", "cmd/coder/cli/flags", "cmd/coder/daemon", "region"}},

	"cmd/coder/settings": {imports: []string{"cmd/coder/cli/flags"}},

	"cmd":            {imports: []string{"appproxy", "cmd/coder/cli", "cmd/coder/cli/config", "cmd/coder/cli/exit", "cmd/coder/cli/flags", "cmd/coder/cli/output", "cmd/coder/daemon", "cmd/coder/settings", "cmd/coder/wsproxy", "coderd/...", "provisionerd/..."}},
	"e2e":            {imports: []string{"bench/slowlink", "agent/...", "coderd/...", "coordinator/client", "coordinator/protocol", "provisionerd/...", "sshmux", "tailnet", "cmd"}},
	"bench":          {imports: []string{"bench/slowlink"}},
	"bench/slowlink": {},
	"bench/fair":     {imports: []string{"bench/slowlink", "tailnet", "tailnet/relay"}},
	"bench/scale": {
		imports: []string{
			"agent", "coderd/database", "coderd/database/embedded", "coderd/httpapi", "coderd/mesh", "coderd/rbac", "coderd/signed", "coordinator", "coordinator/client", "coordinator/protocol", "provisionerd", "provisionerd/echo", "provisionerd/job", "provisionerd/provisionerpb", "tailnet", "tailnet/relay",
		},
	},
	"bench/soak": {imports: []string{"coderd/database"}},
	"site":       {},
	"packaging":  {},
}

// serverTests lists what every black-box test of the server may import in addition: the harness, the options of a server, and the messages
// of the provisioner in the harness.
var serverTests = []string{"coderd", "coderd/coderdtest", "provisionerd/provisionerpb"}

// unknown lists promises of package docs: the package must not import these parts of the program, not even indirectly. The
// phrase must occur in the package's documentation.
var unknown = map[string]struct {
	phrase string
	parts  []string
}{
	"agent/autostart":                 {"knows neither the server nor the mesh", []string{"coderd", "coordinator", "tailnet"}},
	"agent/devcontainer":              {"knows neither the server nor the mesh", []string{"coderd", "coordinator", "tailnet", "agent/agentpb"}},
	"agent/keeper":                    {"knows neither the server nor the mesh", []string{"coderd", "coordinator", "tailnet"}},
	"agent/login":                     {"knows neither the server nor git", []string{"coderd"}},
	"agent/metadata":                  {"knows neither the server nor how scripts are run", []string{"coderd", "agent/script"}},
	"agent/monitor":                   {"knows neither the server nor how a resource is measured", []string{"coderd", "agent/agentpb", "agent/usage"}},
	"agent/proc":                      {"knows neither SSH nor the mesh", []string{"agent/sshd", "tailnet", "coordinator"}},
	"agent/script":                    {"knows neither the server nor the mesh", []string{"coderd", "coordinator", "tailnet"}},
	"agent/terminal":                  {"knows neither the mesh nor the server", []string{"coderd", "coordinator", "tailnet"}},
	"agent/usage":                     {"knows neither workspaces nor agents", []string{"coderd", "agent/agentpb"}},
	"cmd/coder/cli":                   {"this package must not know them", []string{"coderd", "provisionerd"}},
	"cmd/coder/cli/complete":          {"must not know the mesh", []string{"meshclient", "tailnet"}},
	"cmd/coder/cli/config":            {"knows no server", []string{"internal/sdk"}},
	"cmd/coder/cli/exit":              {"knows no server", []string{"internal/sdk"}},
	"cmd/coder/cli/flags":             {"knows no server", []string{"internal/sdk"}},
	"cmd/coder/cli/follow":            {"knows neither the mesh nor the global flags", []string{"meshclient", "tailnet", "cmd/coder/cli/global"}},
	"cmd/coder/cli/form":              {"knows neither the mesh nor the global flags", []string{"meshclient", "tailnet", "cmd/coder/cli/global"}},
	"cmd/coder/cli/forward":           {"knows neither workspaces nor the mesh", []string{"internal/sdk", "meshclient", "tailnet"}},
	"cmd/coder/cli/global":            {"must not know the mesh", []string{"meshclient", "tailnet"}},
	"cmd/coder/cli/output":            {"knows no server", []string{"internal/sdk"}},
	"cmd/coder/cli/session":           {"must not know the global flags", []string{"cmd/coder/cli/global"}},
	"cmd/coder/cli/target":            {"must not know what is done over its connections, nor the global flags", []string{"cmd/coder/cli/session", "cmd/coder/cli/forward", "cmd/coder/cli/global"}},
	"coderd/agents":                   {"must not know how builds are made, nor how the mesh carries its RPCs", []string{"coderd/jobs", "coderd/workspaces", "coderd/templates", "coderd/mesh", "coordinator"}},
	"coderd/idpsync":                  {"must not know templates, workspaces or the mesh", []string{"coderd/templates", "coderd/workspaces", "coderd/mesh", "coderd/signin"}},
	"coderd/database":                 {"knows no feature and no HTTP", []string{"coderd/httpapi", "internal/sdk"}},
	"coderd/webhooks":                 {"must not know what causes them", []string{"coderd/workspaces", "coderd/agents", "coderd/templates", "coderd/users", "coderd/jobs"}},
	"coderd/devices":                  {"knows neither workspaces nor the gateway", []string{"coderd/workspaces", "coderd/agents", "coderd/templates"}},
	"coderd/extauth":                  {"knows nothing of workspaces and agents", []string{"coderd/workspaces", "coderd/agents"}},
	"coderd/groups":                   {"knows neither templates nor workspaces", []string{"coderd/templates", "coderd/workspaces", "coderd/agents"}},
	"coderd/httpapi":                  {"knows neither the database nor any feature", []string{"coderd/database"}},
	"coderd/jobs":                     {"must not know templates or workspaces", []string{"coderd/templates", "coderd/workspaces", "coderd/agents", "coderd/mesh"}},
	"coderd/jobtags":                  {"knows no job, no daemon and no database", []string{"coderd/jobs", "coderd/database", "provisionerd"}},
	"coderd/mesh":                     {"knows neither jobs nor templates", []string{"coderd/jobs", "coderd/templates"}},
	"coderd/organizations":            {"knows no template, workspace, provisioner or mesh", []string{"coderd/templates", "coderd/workspaces", "coderd/provisioners", "coderd/mesh", "tailnet"}},
	"coderd/policy":                   {"must not know the database, HTTP or how builds are made", []string{"coderd/database", "coderd/httpapi", "coderd/workspaces"}},
	"coderd/provisioners":             {"knows neither the mesh nor the queue", []string{"coderd/mesh", "coderd/jobs", "coordinator", "tailnet"}},
	"coderd/pubsub":                   {"knows no feature", []string{"coderd/httpapi", "internal/sdk"}},
	"coderd/redirect":                 {"knows neither users nor providers", []string{"coderd/users", "coderd/extauth", "coderd/signin"}},
	"coderd/signin":                   {"must not know workspaces", []string{"coderd/workspaces", "coderd/templates", "coderd/agents"}},
	"coderd/rbac":                     {"knows neither HTTP nor the database", []string{"coderd/httpapi", "coderd/database"}},
	"coderd/scim":                     {"knows neither templates nor workspaces", []string{"coderd/workspaces", "coderd/templates", "coderd/agents"}},
	"coderd/secrets":                  {"knows nothing of workspaces", []string{"coderd/workspaces", "coderd/agents", "coderd/templates"}},
	"coderd/identity":                 {"knows neither how tokens reach workspaces nor how builds run", []string{"coderd/workspaces", "coderd/agents", "coderd/templates"}},
	"coderd/sshca":                    {"knows neither workspaces nor the gateway", []string{"coderd/workspaces", "coderd/agents", "coderd/templates"}},
	"coderd/sshkeys":                  {"knows neither workspaces nor the gateway", []string{"coderd/workspaces", "coderd/agents", "coderd/templates"}},
	"coderd/templates":                {"must not know workspaces", []string{"coderd/workspaces"}},
	"coderd/users":                    {"knows no template, workspace or mesh", []string{"coderd/templates", "coderd/workspaces", "coderd/mesh", "tailnet"}},
	"coderd/workspaces":               {"must not know how jobs reach a provisioner, nor how agents connect", []string{"coderd/mesh", "coordinator"}},
	"coordinator":                     {"must not know what a workspace, a user or a database is", []string{"coderd", "github.com/jackc/pgx/v5"}},
	"coordinator/client":              {"must not know the server's table, nor what a workspace is", []string{"coderd"}},
	"coordinator/peering":             {"must not know the table of participants, nor the connections of participants", []string{"coordinator/client", "coderd"}},
	"coordinator/protocol":            {"must not know the server or the client", []string{"coordinator/client", "coderd"}},
	"internal/netio":                  {"knows neither the mesh nor SSH", []string{"tailnet", "sshmux", "agent", "golang.org/x/crypto/ssh"}},
	"internal/sshkey":                 {"knows neither the server nor the gateway", []string{"coderd", "agent"}},
	"internal/wgquick":                {"knows neither the server nor the mesh", []string{"coderd", "tailnet", "internal/sdk"}},
	"internal/webhook":                {"knows nothing about what the messages say", []string{"coderd", "tailnet", "internal/sdk"}},
	"internal/usersecret":             {"knows neither the server nor the agent", []string{"coderd", "agent"}},
	"internal/sdk":                    {"knows no database, no mesh and no terminal", []string{"coderd", "tailnet", "coordinator", "internal/tty", "github.com/jackc/pgx/v5"}},
	"internal/tty":                    {"knows no command and no server", []string{"cmd", "coderd"}},
	"meshclient":                      {"knows agents by their ids only, and neither workspaces nor the server's API", []string{"internal/sdk", "coderd", "agent"}},
	"provisionerd":                    {"knows neither Terraform (package job's Executor does) nor the server's database", []string{"provisionerd/terraform", "coderd"}},
	"provisionerd/job":                {"knows neither the mesh nor Terraform", []string{"tailnet", "coordinator", "provisionerd/terraform"}},
	"provisionerd/terraform":          {"knows neither the mesh nor coderd", []string{"tailnet", "coordinator", "coderd"}},
	"provisionerd/terraform/host":     {"must not know the mesh or coderd", []string{"tailnet", "coordinator", "coderd"}},
	"provisionerd/terraform/result":   {"must not know how Terraform is run: neither the executor nor the sandbox", []string{"provisionerd/terraform/sandbox", "github.com/hashicorp/terraform-exec", "tailnet", "coderd"}},
	"provisionerd/terraform/sandbox":  {"must not know jobs, templates or the daemon", []string{"provisionerd", "provisionerd/job", "provisionerd/provisionerpb"}},
	"provisionerd/tfstate":            {"knows neither jobs nor storage", []string{"provisionerd/job"}},
	"provisionerd/terraform/template": {"must not know jobs, sandboxes or the daemon", []string{"provisionerd/job", "provisionerd/terraform/sandbox", "provisionerd/terraform", "tailnet"}},
	"tailnet":                         {"knows no product", []string{"coordinator", "agent", "coderd", "provisionerd", "internal/sdk"}},
}

// only maps an external module to the single subtree that may import it, with the reason.
var only = map[string]struct{ subtree, reason string }{
	"tailscale.com":                                {"tailnet", "its API moves with every release: one package follows it"},
	"tailscale.com/wgengine":                       {"tailnet/engine", "what is assumed of it has a test there"},
	"tailscale.com/net/netcheck":                   {"tailnet/engine", "what is assumed of it has a test there"},
	"tailscale.com/health":                         {"tailnet/engine", "what is assumed of it has a test there"},
	"github.com/tailscale/wireguard-go":            {"tailnet/engine", "what is assumed of it has a test there"},
	"golang.zx2c4.com/wireguard":                   {"tailnet", "devices of others end in one package"},
	"gvisor.dev/gvisor":                            {"tailnet/engine", "what is assumed of it has a test there"},
	"github.com/coder/websocket":                   {"internal/websock", "one import line to change if it is ever replaced"},
	"github.com/coreos/go-oidc/v3":                 {"coderd/signin", "one package decides which ID token is trusted"},
	"github.com/zitadel/oidc/v3":                   {"coderd/signin/signintest", "it is the provider of tests, and must not be linked"},
	"github.com/jackc/pgx/v5":                      {"coderd", "PostgreSQL is the server's"},
	"github.com/hashicorp/terraform-exec":          {"provisionerd/terraform", "only the executor runs Terraform"},
	"github.com/coder/terraform-provider-coder/v2": {"provisionerd/terraform", "the provider is served by the executor's worker"},
}

// TestOneWayOut keeps proxy settings in one package, so that all connections to servers use the same ones.
func TestOneWayOut(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git" || name == "../../internal/webdial") {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err == nil && strings.Contains(string(text), "http.ProxyFromEnvironment") {
			t.Errorf("%s asks the environment for a proxy: use internal/webdial", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// parsers matches HCL's entry points that recurse without a limit.
var parsers = regexp.MustCompile(`hclparse\.NewParser|hcl(syntax|write|json)\.Parse|hclsimple\.|"github.com/hashicorp/hcl/v2/json"`)

// TestParsersAreGuarded keeps HCL's parsers behind internal/syntax, which measures a text first: a stack overflow would end the
// process.
func TestParsersAreGuarded(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git" || name == "../../internal/syntax") {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err == nil && parsers.Match(text) {
			t.Errorf("%s calls %s: use internal/syntax, which bounds what the parser recurses", name, parsers.Find(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// notInSlim lists what the binary in workspaces and on laptops must not link, with the reason.
var notInSlim = map[string]string{
	"github.com/jackc/pgx/v5":                      "no database there",
	"github.com/pressly/goose/v3":                  "no database there",
	"github.com/aws/aws-sdk-go-v2":                 "no database there",
	"github.com/hashicorp/terraform-exec":          "no Terraform there",
	"github.com/hashicorp/hc-install":              "no Terraform there",
	"github.com/coder/terraform-provider-coder/v2": "no Terraform there",
	"github.com/hashicorp/hcl/v2":                  "no Terraform there",
	"github.com/miekg/dns":                         "0.4 MB for all kinds of records; golang.org/x/net knows those that internal/meshdns needs",
	module + "/coderd":                             "the server is in the full binary",
	module + "/provisionerd":                       "provisioners run the full binary",
	module + "/coordinator":                        "the coordinator is the server's; coordinator/client connects to it",
	module + "/site":                               "the dashboard is the server's",
	"testing":                                      "adds flags and a megabyte",
}

// inSlim lists packages below those of notInSlim that the binary may link: what a client of the coordinator needs.
var inSlim = []string{module + "/coordinator/client", module + "/coordinator/protocol"}

type goPackage struct {
	ImportPath   string
	Dir          string
	Export       string // file with its types, with -export
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
}

func list(t *testing.T, args ...string) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Dir,Export,GoFiles,Imports,TestImports,XTestImports,Deps"}, args...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list %v: %v\n%s", args, err, exit.Stderr)
		}
		t.Fatalf("go list %v: %v", args, err)
	}
	var packages []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("decode go list: %v", err)
		}
		packages = append(packages, p)
	}
}

// below reports whether path is subtree or lies below it.
func below(path, subtree string) bool {
	return path == subtree || strings.HasPrefix(path, subtree+"/")
}

// home returns the row of one of our packages.
func home(path string) (best string, ok bool) {
	for row := range law {
		if below(path, row) && len(row) > len(best) {
			best, ok = row, true
		}
	}
	return best, ok
}

// may reports whether a package of a row that may import the given rows may import one of our packages.
func may(row string, imports []string, path string) bool {
	to, _ := home(path)
	if to == row || below(path, "internal") && !below(path, "internal/layout") {
		return true
	}
	return slices.ContainsFunc(imports, func(name string) bool {
		subtree, all := strings.CutSuffix(name, "/...")
		return to == name || all && below(path, subtree)
	})
}

// TestMay: the law rejects what it is meant to reject.
func TestMay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"coderd/users", "coderd/workspaces", false},
		{"coderd/users", "coderd/database/dbsqlc", true},
		{"coderd/agents", "coderd/mesh", false},
		{"coderd/mesh", "coderd/jobs", false},
		{"provisionerd", "provisionerd/terraform", false},
		{"provisionerd", "provisionerd/job", true},
		{"coderd/users", "coderd/coderdtest", false},
		{"coderd/coderdtest", "coderd", true},
		{"coderd", "provisionerd/terraform", false},
		{"tailnet", "internal/sdk", true},
		{"tailnet", "internal/layout", false},
		{"cmd/coder/cli", "agent/sshd", true},
		{"cmd/coder/cli/target", "cmd/coder/cli/session", false},
		{"cmd/coder/cli/workspaces", "cmd/coder/cli/connect", false},
		{"cmd/coder/cli/session", "cmd/coder/cli/global", false},
	} {
		if got := may(c.from, law[c.from].imports, c.to); got != c.want {
			t.Errorf("may %s import %s: %t", c.from, c.to, got)
		}
	}
}

func TestImportLaw(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, p := range list(t, "./...") {
		path := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		row, ok := home(path)
		if !ok {
			t.Errorf("%s: the import law does not name this folder; add it to the table or move the package", path)
			continue
		}
		used[row] = true
		check := func(what string, imports, allowed []string) {
			for _, imported := range imports {
				if own, ok := strings.CutPrefix(imported, module+"/"); ok && !may(row, allowed, own) {
					t.Errorf("%s%s imports %s, but %s may import only %v", what, path, own, row, allowed)
				}
			}
		}
		check("", p.Imports, law[row].imports)
		tests := slices.Concat(law[row].imports, law[row].tests)
		if below(path, "coderd") {
			tests = append(tests, "coderd/database") // dbtest
		}
		check("a test of ", p.TestImports, tests)
		if below(path, "coderd") {
			tests = append(tests, serverTests...)
		}
		check("a black-box test of ", p.XTestImports, tests)
		for _, imported := range p.Imports {
			if own, ok := strings.CutPrefix(imported, module+"/"); ok && strings.HasSuffix(own, "test") && !strings.HasSuffix(path, "test") {
				t.Errorf("%s imports %s, which is for tests", path, own)
			}
		}
		for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			for foreign, rule := range only {
				if foreign == "github.com/coreos/go-oidc/v3" && path == "coderd/identity" && !slices.Contains(p.Imports, imported) {
					continue // its tests verify ID tokens as others do
				}
				if below(imported, foreign) && !below(path, rule.subtree) {
					t.Errorf("%s imports %s, which only %s may: %s", path, imported, rule.subtree, rule.reason)
				}
			}
		}
	}
	for row := range law {
		if !used[row] && row != "internal" {
			t.Errorf("the import law has a row for %s, where no package is", row)
		}
	}
}

// TestDocsHold compares what package docs claim that a package does not know with everything that it links.
func TestDocsHold(t *testing.T) {
	t.Parallel()
	docs := map[string]string{}
	for _, p := range list(t, "./...") {
		path := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		docs[path] = packageDoc(t, p.Dir)
		promise, ok := unknown[path]
		if !ok {
			continue
		}
		if !strings.Contains(docs[path], promise.phrase) {
			t.Errorf("the documentation of %s no longer says that it %s: update the table too", path, promise.phrase)
		}
		for _, dep := range p.Deps {
			own := strings.TrimPrefix(dep, module+"/")
			for _, part := range promise.parts {
				if own == part || part != path && below(own, part) {
					t.Errorf("%s says that it %s, and links %s", path, promise.phrase, own)
				}
			}
		}
	}
	for path := range unknown {
		if _, ok := docs[path]; !ok {
			t.Errorf("the table of promises names %s, where no package is", path)
		}
	}
}

// packageDoc returns a package's documentation on one line.
func packageDoc(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if file.Doc != nil {
			text.WriteString(strings.Join(strings.Fields(file.Doc.Text()), " ") + " ")
		}
	}
	return text.String()
}

func TestSlimLinks(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "./cmd/coder-slim") {
		for _, dep := range p.Deps {
			if slices.Contains(inSlim, dep) {
				continue
			}
			for unwanted, reason := range notInSlim {
				if below(dep, unwanted) {
					t.Errorf("cmd/coder-slim links %s: %s", dep, reason)
				}
			}
		}
	}
}

func TestNoReplace(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod edit: %v", err)
	}
	var mod struct{ Replace []any }
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatalf("decode go.mod: %v", err)
	}
	if len(mod.Replace) > 0 {
		t.Errorf("go.mod replaces %v: `go install` of the program would fail", mod.Replace)
	}
}

// TestDependenciesAreExplained: docs/dependencies.md gives a reason for every direct dependency.
func TestDependenciesAreExplained(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod edit: %v", err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatalf("decode go.mod: %v", err)
	}
	for _, require := range mod.Require {
		// The table names a family by its first member in full and then by last parts.
		short := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(require.Path, "github.com/"), "hashicorp/"), "golang.org/")
		if !require.Indirect && !strings.Contains(string(page), short) {
			t.Errorf("docs/dependencies.md does not say what %s is for, and why", require.Path)
		}
	}
}
