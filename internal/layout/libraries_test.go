package layout_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
