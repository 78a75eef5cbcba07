package target

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestParseWorkspaceName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Name{
		"dev":                   {"me", "dev", ""},
		"dev.main":              {"me", "dev", "main"},
		"ada/dev":               {"ada", "dev", ""},
		"ada--dev":              {"ada", "dev", ""},
		"ada/dev.main":          {"ada", "dev", "main"},
		"ada/dev--main":         {"ada", "dev", "main"},
		"ada--dev.main":         {"ada", "dev", "main"},
		"ada--dev--main":        {"ada", "dev", "main"},
		"main.dev.ada":          {"ada", "dev", "main"},
		"my-user--my-ws.agent1": {"my-user", "my-ws", "agent1"},
		"dev.my_agent":          {"me", "dev", "my_agent"},
	} {
		got, err := ParseName(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	for _, text := range []string{"", "/", "dev/", "/dev", "a..b", "a/b/c", "a.b/c", "a/b.c.d", "a b", "-a", "a-", "ä", "a;b", "$(x)", "a/../b", "a---b"} {
		if got, err := ParseName(text); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%q: got %+v, %v; want an invalid fault", text, got, err)
		}
	}
}

func FuzzParseWorkspaceName(f *testing.F) {
	for _, seed := range []string{"dev", "ada/dev.main", "ada--dev", "a..b", "--", "main.dev.ada"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, err := ParseName(text)
		if err != nil {
			return
		}
		again, err := ParseName(name.String())
		if err != nil || again != name {
			t.Errorf("%q is %+v, printed %q, read again %+v, %v", text, name, name.String(), again, err)
		}
	})
}

func TestTrimHost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ host, prefix, suffix, want string }{
		{"dev", "", "", "dev"},
		{"coder.dev", "coder.", "", "dev"},
		{"dev.coder", "", "coder", "dev"},
		{"dev.coder", "", ".coder", "dev"},
		{"dev.main.coder", "coder.", "coder", "dev.main"},
		{"coder-vscode.example.com--ada--dev.main", "coder-vscode.example.com--", "", "ada--dev.main"},
		{"devcoder", "", "coder", "devcoder"},
	} {
		if got := TrimHost(tt.host, tt.prefix, tt.suffix); got != tt.want {
			t.Errorf("trimHost(%q, %q, %q) = %q, want %q", tt.host, tt.prefix, tt.suffix, got, tt.want)
		}
	}
}

func TestChooseAgent(t *testing.T) {
	t.Parallel()
	with := func(names ...string) sdk.Workspace {
		r := sdk.WorkspaceResource{}
		for _, name := range names {
			r.Agents = append(r.Agents, sdk.WorkspaceAgent{ID: uuid.New(), Name: name})
		}
		return sdk.Workspace{Name: "dev", LatestBuild: sdk.WorkspaceBuild{Resources: []sdk.WorkspaceResource{r}}}
	}
	for _, tt := range []struct {
		ws   sdk.Workspace
		name string
		want string
		code fault.Code
	}{
		{with("main"), "", "main", ""},
		{with("a", "b"), "b", "b", ""},
		{with("a", "b"), "", "", fault.Invalid},
		{with("a", "b"), "c", "", fault.NotFound},
		{with(), "", "", fault.NotFound},
	} {
		got, err := ChooseAgent(tt.ws, tt.name)
		if got.Name != tt.want || fault.CodeOf(err) != tt.code {
			t.Errorf("agents %+v, name %q: got %q, %v; want %q, %q", tt.ws.LatestBuild.Agents(), tt.name, got.Name, err, tt.want, tt.code)
		}
	}
}
