// Package layout_test enforces the import law, which defines what each part of the program may import, and checks the documentation.
package layout_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
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
		tests: []string{"provisionerd/terraform/launcher"},
	},
	"provisionerd/terraform/host": {
		imports: []string{"provisionerd/provisionerpb", "provisionerd/terraform/ask", "provisionerd/terraform/printable", "provisionerd/terraform/sandbox"},
	},
	"provisionerd/terraform/ask":             {},
	"provisionerd/terraform/launcher":        {imports: []string{"provisionerd/terraform/ask", "provisionerd/terraform/sandbox"}},
	"provisionerd/terraform/launcher/packed": {},
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
	"coderd/instanceidentity": {},
	"coderd/agents": {
		imports: []string{
			"coderd/audit", "coderd/database", "coderd/extauth", "coderd/httpapi", "coderd/identity", "coderd/instanceidentity", "coderd/notifications", "coderd/pubsub", "coderd/rbac",
			"coderd/keyring", "agent/agentpb", "provisionerd/provisionerpb", "sshmux", "tailnet",
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
		imports: []string{"cmd/coder/cli/exit", "cmd/coder/cli/global", "cmd/coder/cli/organization", "cmd/coder/cli/output", "cmd/coder/cli/target", "meshclient", "tailnet"},
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
	"bench":          {imports: []string{"bench/slowlink", "tailnet"}},
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
			if own, ok := strings.CutPrefix(imported, module+"/"); ok && forTests(own) && !forTests(path) {
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

// forTests reports whether only tests may use a package: its name says so.
func forTests(path string) bool {
	return strings.HasSuffix(path, "test") || strings.HasPrefix(path, "internal/test")
}
