package cli

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// completed returns what the program offers for the last word of a line, as shells ask for it, however long the server
// takes.
func completed(t *testing.T, dir string, line ...string) []string {
	t.Helper()
	return completedWithin(t, testwait.Patience, dir, line...)
}

func completedWithin(t *testing.T, patience time.Duration, dir string, line ...string) []string {
	t.Helper()
	edit := func(g *global.Flags) { g.CompletionPatience = patience }
	r := runWith(t, dir, "", edit, append([]string{"__complete"}, line...)...)
	if r.fault != nil {
		t.Fatal(r.fault)
	}
	if strings.Contains(r.err, "rror") {
		t.Errorf("%q wrote to the terminal: %s", line, r.err)
	}
	words := strings.Fields(r.out)
	return words[:len(words)-1] // the last says what the shell is to add
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	version, other := uuid.New(), uuid.New()
	preset := sdk.Preset{Name: "large"}
	parameter := func(name string) sdk.TemplateVersionParameter { return sdk.TemplateVersionParameter{Name: name} }
	user := func(name string) (u sdk.User) {
		u.Username = name
		return u
	}
	docker := sdk.Template{Name: "docker", ActiveVersionID: version}
	templates := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("q") != "" {
			templatesNamed(docker)(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode([]sdk.Template{docker, {Name: "dind"}, {Name: "dind"}}) // of two organizations
	})
	workspaces := func(names ...string) (r sdk.WorkspacesResponse) {
		for _, name := range names {
			r.Workspaces = append(r.Workspaces, sdk.Workspace{Name: name, TemplateActiveVersionID: other})
		}
		return r
	}
	srv := newAPI(t, map[string]any{
		// Names that no honest server has: the shell would run them, or show other text.
		"GET workspaces":             workspaces("dev", "data", "dev;reboot", "d$(reboot)", "d\x1b]0;x\x07", "d ", "-d"),
		"GET templates":              templates,
		"GET users":                  sdk.UsersResponse{Users: []sdk.User{user("ada"), user("alan")}},
		"GET groups":                 []sdk.Group{{Name: "devs"}},
		"GET organizations":          []sdk.Organization{{Name: "default"}, {Name: "east"}},
		"GET users/me/workspace/dev": sdk.Workspace{Name: "dev", TemplateActiveVersionID: other},
		"GET templateversions/" + version.String() + "/presets":         []sdk.Preset{preset},
		"GET templateversions/" + version.String() + "/rich-parameters": []sdk.TemplateVersionParameter{parameter("region"), parameter("a b")},
		"GET templateversions/" + other.String() + "/rich-parameters":   []sdk.TemplateVersionParameter{parameter("size")},
	})
	dir := t.TempDir()
	at := []string{"--url", srv.url, "--token", "t"}
	for line, want := range map[string]string{
		"ssh d":                               "dev data",
		"ssh data":                            "data",
		"stop ada/d":                          "ada/dev ada/data",
		"transfer dev al":                     "alan",
		"create -t d":                         "docker dind",
		"create --template=do":                "docker",
		"create x -t docker --preset ":        "large none",
		"create x -t docker --parameter ":     "region=",
		"update dev --parameter ":             "size=",
		"templates delete docker di":          "dind",
		"users show al":                       "alan",
		"groups edit de":                      "devs",
		"templates list --org e":              "east",
		"list -c workspace,stat":              "workspace,status",
		"list -o j":                           "json table", // the shell filters what is in every program
		"organizations invitations decline e": "east",
		"ssh dev x":                           "",
		"version ":                            "",
	} {
		var words []string
		words = append(words, at...)
		got := completed(t, dir, append(words, strings.Split(line, " ")...)...)
		expected := strings.Fields(want)
		slices.Sort(got)
		slices.Sort(expected)
		if !slices.Equal(got, expected) {
			t.Errorf("%q: got %q, want %q", line, got, expected)
		}
	}
}

// A server that is slow or away costs the user a moment, and what was known of it serves. Another session sees nothing of it.
func TestCompletionWithoutServer(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	srv := newAPI(t, map[string]any{
		"GET workspaces": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if away.Load() {
				<-r.Context().Done()
				return
			}
			name := "dev"
			if strings.Contains(r.URL.Query().Get("q"), "name:x") {
				name = "xenon"
			}
			_, _ = w.Write([]byte(`{"workspaces": [{"name": "` + name + `"}], "count": 1}`))
		}),
		"GET templates": fault.New(fault.Internal, "broken"),
	})
	dir := t.TempDir()
	line := func(token string, words ...string) []string {
		return append([]string{"--url", srv.url, "--token", token}, words...)
	}
	if got := completed(t, dir, line("t", "ssh", "d")...); !slices.Equal(got, []string{"dev"}) {
		t.Fatalf("got %q", got)
	}
	away.Store(true)
	if got := completedWithin(t, 50*time.Millisecond, dir, line("t", "ssh", "d")...); !slices.Equal(got, []string{"dev"}) {
		t.Errorf("the server is away: got %q", got)
	}
	if n := len(srv.calls); n != 1 {
		t.Errorf("%d requests for one list within seconds: %q", n, srv.calls)
	}
	for _, other := range [][]string{line("t", "ssh", "x"), line("another", "ssh", "d"), line("t", "templates", "edit", ""), {"ssh", "d"}} {
		if got := completedWithin(t, 50*time.Millisecond, dir, other...); len(got) != 0 {
			t.Errorf("%q: got %q, want nothing", other, got)
		}
	}
}
