package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// hostileText writes to the clipboard, sets the title, clears the screen, moves the cursor back and turns the direction of text.
const hostileText = "evil\x1b]52;c;ZXZpbA==\x07\x1b]0;title\x07\x1b[2J\u009b2J\u009d0;title\u009c\u202e\b\x1b[Aname"

// hostileServer answers with a text wherever the API has one; with refuse, in errors.
func hostileServer(t *testing.T, text string, refuse bool) string {
	t.Helper()
	answers := []struct {
		path   string // a regular expression
		answer any
	}{
		{"workspaces$", new(sdk.WorkspacesResponse)},
		{"workspace/[^/]+$", new(sdk.Workspace)},
		{"workspaces/[^/]+$", new(sdk.Workspace)},
		{"builds$", new([]sdk.WorkspaceBuild)},
		{"builds/[^/]+/logs$", new([]sdk.JobLog)},
		{"agents/[^/]+/logs$", new([]sdk.AgentLog)},
		{"acl$", new(sdk.WorkspaceACL)},
		{"templates$", new([]sdk.Template)},
		{"versions$", new([]sdk.TemplateVersion)},
		{"presets$", new([]sdk.Preset)},
		{"external-auth$", new([]sdk.TemplateVersionExternalAuth)},
		{"rich-parameters$", new([]sdk.TemplateVersionParameter)},
		{"users$", new(sdk.UsersResponse)},
		{"tokens$", new([]sdk.APIKey)},
		{"sessions$", new([]sdk.UserSession)},
		{"secrets$", new([]sdk.UserSecret)},
		{"ssh-keys$", new([]sdk.UserSSHKey)},
		{"devices$", new([]sdk.UserDevice)},
		{"webhooks$", new([]sdk.Webhook)},
		{"deliveries$", new([]sdk.WebhookDelivery)},
		{"template-consents$", new([]sdk.TemplateConsent)},
		{"groups$", new([]sdk.Group)},
		{"organizations$", new([]sdk.Organization)},
		{"invitations$", new([]sdk.OrganizationInvitation)},
		{"members$", new([]sdk.OrganizationMember)},
		{"roles$", new([]sdk.AssignableRole)},
		{"provisionerdaemons$", new([]sdk.ProvisionerDaemon)},
		{"provisionerjobs$", new([]sdk.ProvisionerJob)},
		{"provisionerkeys$", new([]sdk.ProvisionerKey)},
		{"deployment/overview$", new(sdk.DeploymentOverview)},
		{"deployment/config$", new(sdk.DeploymentConfig)},
		{"workspaceproxies$", new(sdk.Regions[sdk.WorkspaceProxy])},
		{"audit$", new(sdk.AuditLogsResponse)},
		{"connectionlog$", new(sdk.ConnectionLogsResponse)},
		{"users/[^/]+$", new(sdk.User)},
		{"organizations/[^/]+$", new(sdk.Organization)},
	}
	for _, a := range answers {
		fill(reflect.ValueOf(a.answer).Elem(), text, 8)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse {
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(sdk.Response{Message: text, Detail: text, Validations: []sdk.Validation{{Field: text, Detail: "1" + text}}})
			return
		}
		for _, a := range answers {
			if regexp.MustCompile(a.path).MatchString(r.URL.Path) {
				_ = json.NewEncoder(w).Encode(a.answer)
				return
			}
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// colors are the only sequences that a command may print.
var colors = regexp.MustCompile("\x1b\\[[0-9;]*m")

// TestHostileAnswers: whatever a server answers, commands print text and colors only, and JSON keeps every character.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	for _, refuse := range []bool{false, true} {
		server := hostileServer(t, hostileText, refuse)
		for _, command := range []string{
			"whoami", "list", "list -o json", "show dev", "logs dev", "schedule show dev", "sharing status dev", "open app dev",
			"templates list", "templates versions list evil", "templates consent list", "users list", "users show evil", "tokens list", "sessions list", "secret list",
			"groups list", "organizations list", "organizations members list", "organizations invitations list", "organizations roles show",
			"provisioner list", "provisioner jobs list", "provisioner keys list", "wsproxy list", "audit list", "audit connections",
			"deployment overview", "deployment activity", "deployment costs", "deployment settings",
		} {
			r := run(t, "", "", append([]string{"--url", server, "--token", "t"}, strings.Fields(command)...)...)
			var reported strings.Builder
			if r.fault != nil {
				report(&tty.Streams{Err: tty.Cleaning(&reported)}, nil, r.fault)
			}
			printed := r.out + r.err + reported.String()
			if strings.Contains(command, "json") && !refuse {
				var list []sdk.Workspace
				if err := json.Unmarshal([]byte(r.out), &list); err != nil || len(list) == 0 || list[0].Name != hostileText {
					t.Errorf("%s: %v, %+v", command, err, list)
				}
			}
			if at := strings.IndexFunc(colors.ReplaceAllString(printed, ""), func(c rune) bool {
				return c < 0x20 && c != '\n' && c != '\t' || c >= 0x7f && c <= 0x9f || c >= 0x202a && c <= 0x202e || c >= 0x2066 && c <= 0x2069
			}); at >= 0 {
				t.Errorf("%s printed %q", command, printed)
			}
			if !refuse && !strings.Contains(printed, "evil") {
				t.Errorf("%s printed nothing of the answer: %q, %v", command, printed, r.fault)
			}
		}
	}
}

// copied matches what people copy from a message: a command, to the end of its line.
var copied = regexp.MustCompile(`(?m)\bcoder [a-z].*$`)

// TestHostileNamesInCommands runs the commands that the program prints in a shell, with names as a hostile server or another user chose them. They
// run "coder" only, without an option that a name added.
func TestHostileNamesInCommands(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil || runtime.GOOS == "windows" {
		t.Skip("the shell of Unix is needed")
	}
	for _, name := range []string{
		"dev; touch evil #", "dev$(touch evil)", "dev`touch evil`", "dev\ntouch evil\n", "dev\rtouch evil\r", "dev'; touch evil; '", `dev"; touch evil; "`, "dev && touch evil", "dev|touch evil",
		"dev\x1b]0;' --template '\a; touch evil; '", "--header-command=touch evil", "-y", "dev > evil", "dev & touch evil", "dev\\' ; touch evil #",
	} {
		server := hostileServer(t, name, false)
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "coder"), []byte("#!"+sh+"\nfor word; do printf '%s\\n' \"$word\" >> words; done\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		commands := 0
		for _, command := range []string{
			"show dev", "open app dev nope", "logs dev.nope", "schedule show dev", "state list dev", "create new --template none", "templates versions list none", "users show none", "secret list",
			"organizations roles show none --org none", "list --search x",
		} {
			r := run(t, "", "", append([]string{"--url", server, "--token", "t"}, strings.Fields(command)...)...)
			var reported strings.Builder
			if r.fault != nil {
				report(&tty.Streams{Err: tty.Cleaning(&reported)}, nil, r.fault)
			}
			for _, line := range copied.FindAllString(r.out+r.err+reported.String(), -1) {
				commands++
				cmd := exec.CommandContext(t.Context(), sh, "-c", line)
				cmd.Dir, cmd.Env = dir, []string{"PATH=" + dir + ":/usr/bin:/bin"}
				out, _ := cmd.CombinedOutput() // a line may have more than a command
				if _, err := os.Stat(filepath.Join(dir, "evil")); err == nil {
					t.Fatalf("%s: a shell that reads %q runs what a name holds: %s", command, line, out)
				}
			}
		}
		words, err := os.ReadFile(filepath.Join(dir, "words"))
		if err != nil || commands < 3 {
			t.Fatalf("%q: %d commands, %v", name, commands, err)
		}
		for word := range strings.Lines(string(words)) {
			if strings.HasPrefix(word, "--header-command") || word == "-y\n" {
				t.Errorf("a name became the option %q", word)
			}
		}
	}
}
