// Package layout_test holds the import law: which part of the program may know which other part.
package layout_test

import (
	"encoding/json"
	"errors"
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

const module = "github.com/codermesh/codermesh"

// allowed maps a subtree to the subtrees of our own code that it may import, besides itself. The longest matching subtree
// decides. Internal leaves may be imported by everybody and are not repeated.
var allowed = map[string][]string{
	"internal":                   {},
	"internal/sdk":               {},
	"internal/layout":            {},
	"tailnet":                    {},
	"coordinator":                {"tailnet"},
	"sshmux":                     {},
	"agent":                      {"tailnet", "coordinator", "sshmux"},
	"agent/agentpb":              {},
	"provisionerd":               {"tailnet", "coordinator"},
	"provisionerd/provisionerpb": {},
	"provisionerd/job":           {"provisionerd/provisionerpb"},
	"coderd":                     {"tailnet", "coordinator", "agent/agentpb", "provisionerd/provisionerpb", "provisionerd/job", "provisionerd/echo", "provisionerd", "site"},
	"coderd/httpapi":             {"coderd/rbac"},
	"coderd/rbac":                {},
	"coderd/pubsub":              {"coderd/database"},
	"coderd/database":            {},
	"coderd/slim":                {},
	"cmd":                        {"agent", "coderd", "coordinator", "provisionerd", "sshmux", "tailnet", "site"},
	"e2e":                        {"agent", "coderd", "coordinator", "provisionerd", "tailnet", "cmd"},
	"bench":                      {},
	"site":                       {},
	"packaging":                  {},
}

// only maps a foreign module to the one subtree that may import it, with the reason.
var only = map[string]struct{ subtree, reason string }{
	"tailscale.com":                                {"tailnet", "its API moves with every release: one package follows it"},
	"tailscale.com/wgengine":                       {"tailnet/engine", "what is assumed of it has a test there"},
	"tailscale.com/net/netcheck":                   {"tailnet/engine", "what is assumed of it has a test there"},
	"tailscale.com/health":                         {"tailnet/engine", "what is assumed of it has a test there"},
	"github.com/tailscale/wireguard-go":            {"tailnet/engine", "what is assumed of it has a test there"},
	"gvisor.dev/gvisor":                            {"tailnet/engine", "what is assumed of it has a test there"},
	"github.com/coder/websocket":                   {"internal/websock", "one import line to change if it is ever replaced"},
	"github.com/jackc/pgx/v5":                      {"coderd", "PostgreSQL is the server's"},
	"github.com/hashicorp/terraform-exec":          {"provisionerd/terraform", "only the executor runs Terraform"},
	"github.com/coder/terraform-provider-coder/v2": {"provisionerd/terraform", "the provider is served by the executor's worker"},
}

// TestOneWayOut keeps the environment's proxy in one package, so that whatever reaches one server of ours reaches all.
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

// parsers are HCL's entry points that recurse without a bound.
var parsers = regexp.MustCompile(`hclparse\.NewParser|hcl(syntax|write|json)\.Parse|hclsimple\.|"github.com/hashicorp/hcl/v2/json"`)

// TestParsersAreGuarded keeps HCL's parsers behind internal/syntax, which measures a text first: a stack overflow ends the process.
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

// notInSlim is what the binary in workspaces and on laptops must not link, with the reason.
var notInSlim = map[string]string{
	"github.com/jackc/pgx/v5":                      "no database there",
	"github.com/pressly/goose/v3":                  "no database there",
	"github.com/hashicorp/terraform-exec":          "no Terraform there",
	"github.com/hashicorp/hc-install":              "no Terraform there",
	"github.com/coder/terraform-provider-coder/v2": "no Terraform there",
	module + "/coderd":                             "the server is in the full binary",
	module + "/provisionerd":                       "provisioners run the full binary",
	module + "/site":                               "the dashboard is the server's",
	"testing":                                      "adds flags and a megabyte",
	"tailscale.com/derp/derpserver":                "the relay is the server's",
}

type goPackage struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
}

func list(t *testing.T, args ...string) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Imports,TestImports,XTestImports,Deps"}, args...)...)
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

// home is the longest subtree in the law that a package of ours lies in.
func home(path string) (best string, ok bool) {
	for subtree := range allowed {
		if below(path, subtree) && len(subtree) > len(best) {
			best, ok = subtree, true
		}
	}
	return best, ok
}

func TestImportLaw(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "./...") {
		path := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		subtree, ok := home(path)
		if !ok {
			t.Errorf("%s: the import law does not name this folder; add it to the table or move the package", path)
			continue
		}
		for _, imported := range p.Imports {
			if own, ok := strings.CutPrefix(imported, module+"/"); ok {
				fine := below(own, subtree) || below(own, "internal") && !below(own, "internal/layout") ||
					slices.ContainsFunc(allowed[subtree], func(s string) bool { return below(own, s) })
				if !fine {
					t.Errorf("%s imports %s, but %s may import only %v", path, own, subtree, allowed[subtree])
				}
			}
			if strings.HasSuffix(path, "httpapi") && strings.Contains(imported, "dbsqlc") {
				t.Errorf("%s imports generated SQL", path)
			}
		}
		for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			for foreign, rule := range only {
				if below(imported, foreign) && !below(path, rule.subtree) {
					t.Errorf("%s imports %s, which only %s may: %s", path, imported, rule.subtree, rule.reason)
				}
			}
		}
	}
}

func TestSlimLinks(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "./cmd/coder-slim") {
		for _, dep := range p.Deps {
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

// Every direct dependency has its reason in the README.
func TestDependenciesAreExplained(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
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
		if !require.Indirect && !strings.Contains(string(readme), short) {
			t.Errorf("README.md does not say what %s is for, and why", require.Path)
		}
	}
}
