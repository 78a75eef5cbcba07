package layout_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// unknown lists promises of package docs: the package must not import these parts of the program, not even indirectly. The
// phrase must occur in the package's documentation.
var unknown = map[string]struct {
	phrase string
	parts  []string
}{
	"agent/archive":                   {"knows neither the server nor what an archive has", []string{"coderd", "internal/sdk"}},
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
	"coderd/instanceidentity":         {"decides nothing about workspaces", []string{"coderd/workspaces", "coderd/agents", "coderd/templates", "coderd/database"}},
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
