package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// api is a server that gives a test's answers: pattern to answer. It calls an answer that is a func, sends an error as such, and sends
// everything else as JSON.
type api struct {
	url string
	mu  sync.Mutex // guards calls
	// calls are the requests so far, as "METHOD path body".
	calls []string
}

func newAPI(t *testing.T, answers map[string]any) *api {
	t.Helper()
	a := &api{}
	mux := http.NewServeMux()
	for pattern, answer := range answers {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" /api/v2/"+path, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			a.mu.Lock()
			a.calls = append(a.calls, strings.TrimSpace(r.Method+" "+strings.TrimPrefix(r.URL.Path, "/api/v2/")+" "+string(body)))
			a.mu.Unlock()
			r.Body = io.NopCloser(bytes.NewReader(body))
			switch v := answer.(type) {
			case http.HandlerFunc:
				v(w, r)
			case *fault.Error:
				w.WriteHeader(v.Code.HTTPStatus())
				_ = json.NewEncoder(w).Encode(sdk.Response{Message: v.Message, Detail: v.Detail})
			default:
				_ = json.NewEncoder(w).Encode(v)
			}
		})
	}
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	a.url = srv.URL
	return a
}

// templatesNamed answers searches for a template by its exact name, in all organizations.
func templatesNamed(templates ...sdk.Template) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		found := slices.DeleteFunc(slices.Clone(templates), func(t sdk.Template) bool {
			return r.URL.Query().Get("q") != fmt.Sprintf("exact_name:%q", t.Name)
		})
		_ = json.NewEncoder(w).Encode(found)
	}
}

// result is the outcome of one run of the program.
type result struct {
	out, err string
	fault    error
	dir      string
}

// run runs the program on pipes, or on a terminal on which a user types typed.
func run(t *testing.T, dir, typed string, args ...string) result {
	t.Helper()
	if dir == "" {
		dir = t.TempDir()
	}
	return runWith(t, dir, typed, func(*global.Flags) {}, args...)
}

// runWith is run with other flags than a user's.
func runWith(t *testing.T, dir, typed string, edit func(*global.Flags), args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	g := global.New(&tty.Streams{In: strings.NewReader(typed), Out: tty.Cleaning(&out), Err: tty.Cleaning(&errs), InTTY: typed != ""})
	edit(g)
	root := root(g, nil)
	root.SetArgs(append([]string{"--global-config", dir}, args...))
	root.SetOut(&out)
	root.SetErr(&errs)
	err := root.ExecuteContext(t.Context())
	return result{out.String(), errs.String(), err, dir}
}

func TestLoginFirstUser(t *testing.T) {
	t.Parallel()
	answers := map[string]any{
		"GET users/first": fault.New(fault.NotFound, "no users"), "POST users/first": sdk.CreateFirstUserResponse{},
		"POST users/login": sdk.LoginResponse{SessionToken: "abcdefghij-0123456789012345678901"}, "GET users/me": sdk.User{Username: "ada"},
	}
	srv := newAPI(t, answers)
	args := []string{"login", srv.url, "--first-user-username", "ada", "--first-user-email", "ada@example.com", "--first-user-password", "pw"}
	if r := run(t, "", "", args...); !strings.Contains(r.fault.Error(), "--setup-code") || slices.ContainsFunc(srv.calls, func(c string) bool { return strings.HasPrefix(c, "POST") }) {
		t.Errorf("without a setup code: got %v, calls %q", r.fault, srv.calls)
	}
	// The code of a server on this machine is in the folder.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, config.FileSetupCode), []byte("ABCD-EFGH\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, dir, "", args...)
	if want := `POST users/first {"email":"ada@example.com","username":"ada","name":"","password":"pw","trial":false,"setup_code":"ABCD-EFGH"}`; !slices.Contains(srv.calls, want) {
		t.Errorf("calls %q lack %q", srv.calls, want)
	}
	if r.fault != nil {
		t.Fatal(r.fault)
	}
	for name, want := range map[string]string{config.FileSession: "abcdefghij-0123456789012345678901", config.FileURL: srv.url} {
		path := filepath.Join(r.dir, name)
		data, err := os.ReadFile(path)
		if err != nil || string(data) != want {
			t.Errorf("%s: %q, %v, want %q", name, data, err, want)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v, want 0600", name, info.Mode(), err)
		}
	}
	if r := run(t, r.dir, "", "whoami"); r.fault != nil || !strings.Contains(r.out, "ada") {
		t.Errorf("whoami: %+v", r)
	}
	if r := run(t, r.dir, "", "login", "token"); r.out != "abcdefghij-0123456789012345678901\n" {
		t.Errorf("login token: %+v", r)
	}

	// On a terminal it asks. It rejects a short password at once, and a typo in the first of two can be corrected.
	r = run(t, "", "WXYZ-1234\nada\nada@example.com\nshort\nWrong-Horse\nRight-Horse\nRight-Horse\nRight-Horse\n", "login", srv.url)
	if r.fault != nil || !strings.Contains(r.err, "at least 8 characters") || !strings.Contains(r.err, "The passwords do not match.") {
		t.Errorf("prompts: %v\n%s", r.fault, r.err)
	}
	want := `POST users/first {"email":"ada@example.com","username":"ada","name":"","password":"Right-Horse","trial":false,"setup_code":"WXYZ-1234"}`
	if !slices.Contains(srv.calls, want) {
		t.Errorf("calls %q lack %q", srv.calls, want)
	}
	if r := run(t, dir, "", "login", srv.url); !strings.Contains(r.fault.Error(), "--first-user-username") {
		t.Errorf("without a terminal: got %v, want the flag's name", r.fault)
	}
}

func TestLoginToken(t *testing.T) {
	t.Parallel()
	srv := newAPI(t, map[string]any{
		"GET users/first": struct{}{}, "GET users/me": sdk.User{Username: "ada"},
		"POST users/me/keys": sdk.CreateTokenResponse{Key: "new-session"},
	})
	r := run(t, "", "", "login", srv.url, "--token", "given")
	if data, _ := os.ReadFile(filepath.Join(r.dir, config.FileSession)); r.fault != nil || string(data) != "new-session" {
		t.Errorf("--token: %v, session %q", r.fault, data)
	}
	r = run(t, "", "", "--token", "given", "login", "--use-token-as-session", srv.url)
	if data, _ := os.ReadFile(filepath.Join(r.dir, config.FileSession)); r.fault != nil || string(data) != "given" {
		t.Errorf("--use-token-as-session: %v, session %q", r.fault, data)
	}
	if r := run(t, "", "", "login", srv.url); r.fault == nil || !strings.Contains(r.fault.Error(), "--token") {
		t.Errorf("without a terminal: got %v, want the flag's name", r.fault)
	}
	refusing := newAPI(t, map[string]any{"GET users/me": fault.New(fault.Unauthenticated, "who?")})
	if r := run(t, "", "", "login", refusing.url, "--token", "bad"); fault.CodeOf(r.fault) != fault.Unauthenticated {
		t.Errorf("bad token: got %v", r.fault)
	}
}

// hintText returns what an error suggests to try.
func hintText(err error) string {
	hint, _ := exit.Hint(err)
	return hint
}

func TestNotSignedIn(t *testing.T) {
	t.Parallel()
	r := run(t, "", "", "list")
	if fault.CodeOf(r.fault) != fault.Unauthenticated || !strings.HasPrefix(hintText(r.fault), "coder login") {
		t.Errorf("got %v, hint %q", r.fault, hintText(r.fault))
	}
}

var testWorkspace = sdk.Workspace{
	ID: uuid.MustParse("11111111-1111-1111-1111-111111111111"), Name: "dev", OwnerName: "ada", TemplateName: "process",
	LatestBuild: sdk.WorkspaceBuild{
		ID: uuid.MustParse("22222222-2222-2222-2222-222222222222"), BuildNumber: 3, Transition: sdk.TransitionStart, Status: sdk.WorkspaceRunning,
		Job: sdk.ProvisionerJob{Status: sdk.JobSucceeded}, WorkspaceOwnerName: "ada", WorkspaceName: "dev",
	},
}

func TestList(t *testing.T) {
	t.Parallel()
	srv := newAPI(t, map[string]any{"GET workspaces": sdk.WorkspacesResponse{Workspaces: []sdk.Workspace{testWorkspace}, Count: 1}})
	at := []string{"--url", srv.url, "--token", "t"}
	r := run(t, "", "", append(at, "list")...)
	lines := strings.Split(r.out, "\n")
	if r.fault != nil || len(lines) != 3 || !strings.HasPrefix(lines[0], "WORKSPACE") || !strings.HasPrefix(lines[1], "ada/dev    process   Running") {
		t.Errorf("table: %v\n%s", r.fault, r.out)
	}
	r = run(t, "", "", append(at, "list", "-o", "json")...)
	var got []sdk.Workspace
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || len(got) != 1 || got[0].Name != "dev" {
		t.Errorf("json: %v %v\n%s", r.fault, err, r.out)
	}
	if r = run(t, "", "", append(at, "list", "-c", "name,status")...); r.out != "NAME  STATUS\ndev   Running\n" {
		t.Errorf("columns: %q", r.out)
	}
	if r = run(t, "", "", append(at, "list", "-c", "nope")...); fault.CodeOf(r.fault) != fault.Invalid {
		t.Errorf("unknown column: got %v", r.fault)
	}
	if r = run(t, "", "", append(at, "list", "-o", "xml")...); fault.CodeOf(r.fault) != fault.Invalid {
		t.Errorf("unknown format: got %v", r.fault)
	}
}

// TestPathsOfClients: while clients are connected, list and show report how they reach the workspace.
func TestPathsOfClients(t *testing.T) {
	t.Parallel()
	dev := testWorkspace
	agent := sdk.WorkspaceAgent{ID: uuid.New(), Name: "main", Status: sdk.AgentConnected}
	dev.LatestBuild.Resources = []sdk.WorkspaceResource{{Type: "null_resource", Name: "host", Agents: []sdk.WorkspaceAgent{agent}}}
	srv := newAPI(t, map[string]any{
		"GET workspaces":              sdk.WorkspacesResponse{Workspaces: []sdk.Workspace{dev}, Count: 1},
		"GET users/me/workspace/dev":  dev,
		"GET users/ada/workspace/dev": dev,
		"GET mesh/peers": sdk.MeshPeersResponse{Peers: []sdk.MeshPeer{{ID: agent.ID, Kind: sdk.PeerAgent, Clients: []sdk.MeshClient{
			{Path: sdk.PathDirect, LatencyMillis: 12.3456}, {Path: sdk.PathRelayed}, {Path: sdk.PathUnknown},
		}}}},
	})
	at := []string{"--url", srv.url, "--token", "t"}
	const want = "direct 12.35ms, relayed, idle"
	if r := run(t, "", "", append(at, "list")...); r.fault != nil || !strings.Contains(r.out, "PATH") || !strings.Contains(r.out, want) {
		t.Errorf("list: %v\n%s", r.fault, r.out)
	}
	if r := run(t, "", "", append(at, "list", "-c", "name,path")...); r.out != "NAME  PATH\ndev   "+want+"\n" {
		t.Errorf("columns: %v %q", r.fault, r.out)
	}
	if r := run(t, "", "", append(at, "show", "dev")...); r.fault != nil || !strings.Contains(r.out, "main is reached by: "+want+"\n") {
		t.Errorf("show: %v\n%s", r.fault, r.out)
	}
}

// logs answers a follow with these stages.
func logs(t *testing.T, stages ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, err := websock.Accept(w, r, websock.AcceptOptions{})
		if err != nil {
			t.Error(err)
			return
		}
		for i, stage := range stages {
			if err := conn.WriteJSON(r.Context(), sdk.JobLog{ID: int64(i + 1), Level: sdk.LogInfo, Stage: stage, Output: "line of " + stage}); err != nil {
				t.Error(err)
			}
		}
		conn.Close(websock.StatusNormal, "")
	}
}

func TestStopFollows(t *testing.T) {
	t.Parallel()
	build := testWorkspace.LatestBuild
	build.Transition, build.BuildNumber, build.ID = sdk.TransitionStop, 4, uuid.New()
	answers := map[string]any{
		"GET users/me/workspace/dev":                               testWorkspace,
		"POST workspaces/" + testWorkspace.ID.String() + "/builds": build,
		"GET workspacebuilds/" + build.ID.String() + "/logs":       logs(t, "Setting up", "Stopping workspace", "Stopping workspace"),
		"GET workspacebuilds/" + build.ID.String():                 build,
	}
	srv := newAPI(t, answers)
	r := run(t, "", "", "--url", srv.url, "--token", "t", "stop", "dev", "-y")
	want := "==> Setting up\nline of Setting up\n==> Stopping workspace\nline of Stopping workspace\nline of Stopping workspace\nThe workspace ada/dev has been stopped.\n"
	if diff := cmp.Diff(want, r.err); r.fault != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", r.fault, diff)
	}
	if r := run(t, "", "", "--url", srv.url, "--token", "t", "stop", "dev"); fault.CodeOf(r.fault) != fault.Invalid {
		t.Errorf("without --yes and terminal: got %v", r.fault)
	} else if hint, _ := exit.Hint(r.fault); hint != "Add --yes to the command." { // a shortened command line would lack what it is about
		t.Errorf("without --yes and terminal: try %q", hint)
	}
	if r := run(t, "", "no\n", "--url", srv.url, "--token", "t", "stop", "dev"); r.fault == nil {
		t.Error("answered no: want an error")
	}

	failed := build
	failed.Job = sdk.ProvisionerJob{Status: sdk.JobFailed, Error: "main.tf:3: no such thing"}
	answers["GET workspacebuilds/"+build.ID.String()] = failed
	srv = newAPI(t, answers)
	r = run(t, "", "", "--url", srv.url, "--token", "t", "stop", "dev", "-y")
	if r.fault == nil || !strings.Contains(r.fault.Error(), "main.tf:3: no such thing") || hintText(r.fault) != "coder logs ada/dev -n 4" {
		t.Errorf("failed build: got %v, hint %q", r.fault, hintText(r.fault))
	}
}

func TestCreateWithoutTerminal(t *testing.T) {
	t.Parallel()
	template := sdk.Template{ID: uuid.New(), Name: "process", ActiveVersionID: uuid.New()}
	srv := newAPI(t, map[string]any{
		"GET templates": templatesNamed(template),
		"POST templateversions/" + template.ActiveVersionID.String() + "/dynamic-parameters/evaluate": sdk.EvaluateParametersResponse{Parameters: []sdk.PreviewParameter{
			{Name: "region", Type: "string", Required: true, Options: []sdk.PreviewOption{{Name: "Europe", Value: sdk.PreviewValue{Value: "eu", Valid: true}}}},
			{Name: "cpu", Type: "number", Mutable: true, DefaultValue: sdk.PreviewValue{Value: "2", Valid: true}, Value: sdk.PreviewValue{Value: "2", Valid: true},
				Validations: []sdk.ParameterValidation{{Min: new(int64(1)), Max: new(int64(8))}}},
		}},
		"GET templateversions/" + template.ActiveVersionID.String() + "/external-auth": []sdk.TemplateVersionExternalAuth{},
		"GET templateversions/" + template.ActiveVersionID.String() + "/presets":       []sdk.Preset{},
		"POST users/me/workspaces": testWorkspace,
	})
	at := []string{"--url", srv.url, "--token", "t", "create", "dev", "-y", "--no-wait"}
	if r := run(t, "", "", append(at, "-t", "process")...); r.fault == nil || !strings.Contains(r.fault.Error(), "--parameter region=") {
		t.Errorf("missing parameter: got %v", r.fault)
	}
	if r := run(t, "", "", append(at, "-t", "nope")...); fault.CodeOf(r.fault) != fault.NotFound {
		t.Errorf("no such template: got %v", r.fault)
	}
	for _, wrong := range []string{"region=us", "cpu=9"} {
		if r := run(t, "", "", append(at, "-t", "process", "--parameter", "region=eu", "--parameter", wrong)...); fault.CodeOf(r.fault) != fault.Invalid || !strings.Contains(r.fault.Error(), "it must be") {
			t.Errorf("%s: got %v", wrong, r.fault)
		}
	}
	if r := run(t, "", "", append(at, "-t", "process", "--parameter", "region=eu")...); r.fault != nil {
		t.Fatal(r.fault)
	}
	last := srv.calls[len(srv.calls)-1]
	want := `POST users/me/workspaces {"template_id":"` + template.ID.String() + `","name":"dev","rich_parameter_values":[{"name":"region","value":"eu"}],"automatic_updates":"never"}`
	if diff := cmp.Diff(want, last); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

// TestCreateOnATerminal: the plan is shown before the question, and nothing is created without it or against the answer.
func TestCreateOnATerminal(t *testing.T) {
	t.Parallel()
	template := sdk.Template{ID: uuid.New(), Name: "process", ActiveVersionID: uuid.New()}
	version, plan := "templateversions/"+template.ActiveVersionID.String(), sdk.ProvisionerJob{ID: uuid.New(), Status: sdk.JobSucceeded}
	ready := testWorkspace
	ready.LatestBuild.Job.Status = sdk.JobSucceeded
	agent := func(status sdk.AgentStatus, state sdk.AgentLifecycle) sdk.Workspace {
		w := ready
		w.LatestBuild.Resources = sdk.List[sdk.WorkspaceResource]{{Type: "process", Name: "dev", Agents: sdk.List[sdk.WorkspaceAgent]{{Name: "main", Status: status, LifecycleState: state}}}}
		return w
	}
	answers := map[string]any{
		"GET templates": []sdk.Template{template},
		"POST " + version + "/dynamic-parameters/evaluate":               sdk.EvaluateParametersResponse{},
		"GET " + version + "/external-auth":                              []sdk.TemplateVersionExternalAuth{},
		"GET " + version + "/presets":                                    []sdk.Preset{{ID: uuid.New(), Name: "Usual", Default: true}, {ID: uuid.New(), Name: "Other"}},
		"POST " + version + "/dry-run":                                   plan,
		"GET " + version + "/dry-run/" + plan.ID.String():                plan,
		"GET " + version + "/dry-run/" + plan.ID.String() + "/logs":      logs(t, "Planning"),
		"GET " + version + "/dry-run/" + plan.ID.String() + "/resources": []sdk.WorkspaceResource{{Type: "process", Name: "dev", Agents: sdk.List[sdk.WorkspaceAgent]{{Name: "main", OperatingSystem: "linux", Architecture: "amd64", Apps: sdk.List[sdk.WorkspaceApp]{{Slug: "web"}}}}}, {Type: "disk", Name: "home"}},
		"POST users/me/workspaces":                                       ready,
		"GET workspacebuilds/" + ready.LatestBuild.ID.String():           ready.LatestBuild,
		"GET workspacebuilds/" + ready.LatestBuild.ID.String() + "/logs": logs(t, "Starting workspace"),
		"GET workspaces/" + ready.ID.String():                            agent(sdk.AgentConnected, sdk.LifecycleReady),
	}
	create := func(typed string) (result, *api) {
		srv := newAPI(t, answers)
		return run(t, "", typed, "--url", srv.url, "--token", "t", "create", "dev"), srv
	}
	created := func(srv *api) bool {
		return slices.ContainsFunc(srv.calls, func(call string) bool { return strings.HasPrefix(call, "POST users/me/workspaces") })
	}
	r, srv := create("other\n\n")
	for _, want := range []string{"Using the only template, process.", "1) Usual", "Planning", "process.dev  main   linux/amd64  web", "disk.home", "The workspace ada/dev is ready. Connect: coder ssh dev"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("%v: shown %s, want %q", r.fault, r.err, want)
		}
	}
	if r.fault != nil || !created(srv) {
		t.Errorf("got %v, calls %q", r.fault, srv.calls)
	}
	if r, srv := create("other\nno\n"); r.fault == nil || created(srv) {
		t.Errorf("answered no: got %v, calls %q", r.fault, srv.calls)
	}
	for state, want := range map[sdk.AgentLifecycle]string{
		sdk.LifecycleStartError: "but a start script of its agent main failed or took too long: coder logs ada/dev",
		sdk.LifecycleStarting:   "Start scripts of its agent main are still running. Connect: coder ssh dev",
	} {
		answers["GET workspaces/"+ready.ID.String()] = agent(sdk.AgentConnected, state)
		if r, _ := create("other\n\n"); r.fault != nil || !strings.Contains(r.err, want) || strings.Contains(r.err, "is ready") {
			t.Errorf("%s: %v, shown %s, want %q", state, r.fault, r.err, want)
		}
	}
	plan.Status, plan.Error = sdk.JobFailed, "no such disk"
	answers["GET "+version+"/dry-run/"+plan.ID.String()] = plan
	if r, srv := create("other\n\n"); r.fault == nil || !strings.Contains(r.fault.Error(), "no such disk") || created(srv) {
		t.Errorf("a plan that fails: got %v, calls %q", r.fault, srv.calls)
	}
}

func TestEnvironmentTwins(t *testing.T) {
	srv := newAPI(t, map[string]any{"GET workspaces": sdk.WorkspacesResponse{}})
	t.Setenv("CODER_URL", srv.url)
	t.Setenv("CODER_SESSION_TOKEN", "t")
	t.Setenv("CODER_LIST_OUTPUT", "json")
	if r := run(t, "", "", "list"); r.fault != nil || r.out != "[]\n" {
		t.Errorf("got %v %q", r.fault, r.out)
	}
	if r := run(t, "", "", "list", "-o", "table"); r.fault != nil || r.out != "" {
		t.Errorf("the flag wins: got %v %q", r.fault, r.out)
	}
	t.Setenv("CODER_VERBOSE", "maybe")
	if r := run(t, "", "", "list"); r.fault == nil || !strings.Contains(r.fault.Error(), "CODER_VERBOSE") {
		t.Errorf("a bad value: got %v", r.fault)
	}
}

func TestEnvNames(t *testing.T) {
	t.Parallel()
	root := New()
	for _, tt := range []struct{ command, flag, want string }{
		{"ssh", "url", "CODER_URL"}, {"ssh", "token", "CODER_SESSION_TOKEN"}, {"ssh", "wait", "CODER_SSH_WAIT"}, {"ssh", "global-config", "CODER_CONFIG_DIR"},
		{"templates push", "message", "CODER_TEMPLATES_PUSH_MESSAGE"}, {"agent", "agent-url", "CODER_AGENT_URL"}, {"agent", "url", "CODER_URL"},
		{"agent", "log-dir", "CODER_AGENT_LOG_DIR"}, {"login", "first-user-email", "CODER_FIRST_USER_EMAIL"},
	} {
		cmd, _, err := root.Find(strings.Fields(tt.command))
		if err != nil {
			t.Fatal(err)
		}
		flag := cmd.Flags().Lookup(tt.flag)
		if flag == nil {
			flag = root.PersistentFlags().Lookup(tt.flag)
		}
		if got := flags.EnvNames(cmd, flag); got[0] != tt.want {
			t.Errorf("%s --%s: got %q, want %s", tt.command, tt.flag, got, tt.want)
		}
	}
}

// TestHelp checks that every command describes what it does and how, and that help touches nothing.
func TestHelp(t *testing.T) {
	t.Parallel()
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Name() == "help" {
			return
		}
		if cmd.Short == "" || cmd.Example == "" {
			t.Errorf("%s: no short description or no example", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(New())
	dir := filepath.Join(t.TempDir(), "none")
	for _, args := range [][]string{{"--help"}, {"ssh", "--help"}, {"version"}, {"version", "-o", "json"}} {
		if r := run(t, dir, "", args...); r.fault != nil || r.out == "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("help made the configuration folder")
	}
}

func TestExtraCommands(t *testing.T) {
	t.Parallel()
	start := &cobra.Command{Use: "start", Run: func(*cobra.Command, []string) {}}
	parent := &cobra.Command{Use: "provisioner"}
	parent.AddCommand(start)
	root := New(&cobra.Command{Use: "server", Run: func(*cobra.Command, []string) {}}, parent)
	for _, path := range []string{"server", "provisioner start", "provisioner list"} {
		cmd, _, err := root.Find(strings.Fields(path))
		if err != nil || cmd.CommandPath() != "coder "+path {
			t.Errorf("%s: found %v, %v", path, cmd, err)
		}
	}
}

func TestTemplatesInit(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "mine")
	if r := run(t, "", "", "templates", "init", dir, "--id", "process"); r.fault != nil {
		t.Fatal(r.fault)
	}
	if _, err := os.Stat(filepath.Join(dir, "main.tf")); err != nil {
		t.Error(err)
	}
	if r := run(t, "", "", "templates", "init", dir, "--id", "process"); fault.CodeOf(r.fault) != fault.Conflict {
		t.Errorf("again: got %v, want a conflict", r.fault)
	}
	if r := run(t, "", "", "templates", "init", dir, "--id", "nope"); fault.CodeOf(r.fault) != fault.NotFound {
		t.Errorf("unknown starter: got %v", r.fault)
	}
	if r := run(t, "", "", "templates", "init"); fault.CodeOf(r.fault) != fault.Invalid {
		t.Errorf("no starter: got %v", r.fault)
	}
	if r := run(t, "", "", "templates", "init", "nope"); fault.CodeOf(r.fault) != fault.Invalid ||
		!strings.Contains(r.fault.Error(), `"nope" is not a starter`) {
		t.Errorf("a folder without a starter: got %v", r.fault)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want string
	}{
		{exit.Try(fault.New(fault.NotFound, "no such\nthing"), "coder list"), "error: no such thing\nTry: coder list\n"},
		{fault.New(fault.Unauthenticated, "who are you"), "error: who are you\nTry: coder login\n"},
		{fault.New(fault.Invalid, "refused").WithField("name", "too long"), "error: refused; name: too long\nTry: coder ssh --help\n"},
		{errors.New("plain"), "error: plain\nTry: coder ssh --help\n"},
		{fmt.Errorf("write known hosts: %w", syscall.ENOSPC), "error: This machine's disk is full.\nTry: Remove files that are no longer needed, or enlarge it.\n"},
	} {
		var out bytes.Buffer
		root := New()
		cmd, _, err := root.Find([]string{"ssh"})
		if err != nil {
			t.Fatal(err)
		}
		report(&tty.Streams{Err: &out}, cmd, tt.err)
		if diff := cmp.Diff(tt.want, out.String()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.err, diff)
		}
	}
}

// TestTemplatesEdit: edit changes only what the flags name, including empty values.
func TestTemplatesEdit(t *testing.T) {
	t.Parallel()
	template := sdk.Template{ID: uuid.New(), Name: "process"}
	srv := newAPI(t, map[string]any{
		"GET templates": templatesNamed(template), "PATCH templates/" + template.ID.String(): template,
	})
	at := []string{"--url", srv.url, "--token", "t", "templates", "edit", "process"}
	if r := run(t, "", "", at...); fault.CodeOf(r.fault) != fault.Invalid || r.fault == nil {
		t.Errorf("without a change: got %v", r.fault)
	}
	if r := run(t, "", "", append(at, "--description", "", "--default-ttl", "8h")...); r.fault != nil {
		t.Fatal(r.fault)
	}
	want := "PATCH templates/" + template.ID.String() + ` {"description":"","default_ttl_ms":28800000}`
	if got := srv.calls[len(srv.calls)-1]; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
