package e2e_test

import (
	"archive/zip"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestSupportBundleHasNoSecrets plants secrets of every kind in a deployment, and looks for each in the bundles of an owner and of a member
// who owns no workspace.
func TestSupportBundleHasNoSecrets(t *testing.T) {
	t.Parallel()
	const psk, scim = "planted-psk-0a1b2c3d4e5f", "planted-scim-token-0a1b2c3d4e5f6a7b8c9d"
	stateKey := base64.StdEncoding.EncodeToString([]byte("planted-state-key-of-32-bytes!!!"))
	d := prepare(t)
	d.extra = append(d.extra, "CODER_PROVISIONER_DAEMON_PSK="+psk, "CODER_SCIM_AUTH_HEADER="+scim, "CODER_STATE_ENCRYPTION_KEY="+stateKey)
	d.begin()
	member := d.member("bob")
	d.coder("secrets", "create", "deploy", "--value", "planted-user-secret", "--env", "DEPLOY_SECRET")

	d.pushPlanted(t)
	d.coder("create", "dev", "-t", "planted", "-y", "--parameter", "passphrase=planted-parameter")
	d.coder("ssh", "dev", "--", "true")
	w := d.workspace("dev")
	testwait.Until(t, "the script's output", func() error { return testwait.Contains(d.coder("logs", "dev"), "end of the script") })

	database, err := os.ReadFile(filepath.Join(d.dir, "config-admin", "postgres", "password"))
	if err != nil {
		t.Fatal(err)
	}
	session, err := os.ReadFile(filepath.Join(d.dir, "config-admin", "session"))
	if err != nil {
		t.Fatal(err)
	}
	planted := map[string]string{
		"owner's API token": d.token, "owner's session": strings.TrimSpace(string(session)), "member's token": member, "password": password,
		"pre-shared key": psk, "SCIM token": scim, "state key": stateKey, "database's password": strings.TrimSpace(string(database)),
		"agent's token": d.agentToken(w), "template's variable": "planted-variable", "parameter": "planted-parameter",
		"agent's environment": "planted-environment", "script's text": "planted-script", "app's command": "planted-app", "user's secret": "planted-user-secret",
		"token in a log": "planted-log-token", "password of a URL in a log": "planted-log-password", "caller's environment": "planted-caller",
	}
	for what, secret := range planted {
		if len(secret) < 8 {
			t.Fatalf("the %s is %q, which proves nothing", what, secret)
		}
	}

	d.coder("organizations", "create", "research", "-y")
	d.coder("ssh", "dev", "--", "echo token=planted-log-token and the rest > leak.txt")
	files, listed := d.bundle(t, "admin", "dev", "main", "--pprof", "--template", "planted", "--workspace-file", "leak.txt")
	for _, name := range []string{
		"doctor.json", "environment.json", "network.json", "program.json", "server/build.json", "server/health.json", "server/mesh.json", "server/organizations.json",
		"server/servers.json", "organization/default/failed-jobs.json", "organization/default/provisioners.json", "organization/research/provisioners.json", "workspace/agent-main-log.json", "workspace/build-log.json", "workspace/build-timings.json", "workspace/workspace.json",
		"workspace/files/1-leak.txt", "template/version.json", "server/workspaces.json", "server/pprof/heap.pb.gz", "server/pprof/profile.pb.gz",
	} {
		if files[name] == "" || !strings.Contains(listed, name) {
			t.Errorf("the owner's bundle lacks %s, or does not list it:\n%s", name, listed)
		}
	}
	if log := files["workspace/agent-main-log.json"]; !strings.Contains(log, "end of the script") {
		t.Errorf("the agent's log is not complete:\n%s", log)
	}
	if leak := files["workspace/files/1-leak.txt"]; !strings.Contains(leak, "and the rest") {
		t.Errorf("the workspace's file is %q", leak)
	}
	other, _ := d.bundle(t, "bob", "--pprof")
	if other["server/pprof/heap.pb.gz"] != "" || other["server/health.error.txt"] == "" || other["organization/default/failed-jobs.error.txt"] == "" && strings.Contains(other["organization/default/failed-jobs.json"], w.ID) ||
		other["organization/research/provisioners.json"] != "" {
		t.Errorf("a member's bundle has what the member may not see: %v", other)
	}
	for owner, all := range map[string]map[string]string{"owner": files, "member": other} {
		for name, text := range all {
			for what, secret := range planted {
				if strings.Contains(text, secret) {
					t.Errorf("%s of the %s has the %s", name, owner, what)
				}
			}
		}
	}

	// A file that exists is not overwritten.
	if _, stderr, err := d.try("support", "bundle", "--yes", "--output-file", filepath.Join(d.dir, "admin.zip")); err == nil || !strings.Contains(stderr, "exists") {
		t.Errorf("an existing file: %v %s", err, stderr)
	}
}

// pushPlanted pushes a template that has secrets wherever one may be.
func (d *deployment) pushPlanted(t *testing.T) {
	t.Helper()
	template := filepath.Join(d.dir, "process")
	d.coder("templates", "init", "--id", "process", template)
	main, err := os.OpenFile(filepath.Join(template, "main.tf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = main.WriteString(plantedTemplate)
	if err := main.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.coder("templates", "push", "planted", "-d", template, "-y", "--variable", "credential=planted-variable")
}

// bundle makes a bundle as a user. It returns its files, and what the command printed.
func (d *deployment) bundle(t *testing.T, user string, args ...string) (files map[string]string, listed string) {
	t.Helper()
	file := filepath.Join(d.dir, user+".zip")
	cmd := d.commandAs(t.Context(), user, append([]string{"support", "bundle", "--yes", "--output-file", file}, args...)...)
	cmd.Env = append(cmd.Env, "CODER_PROVISIONER_DAEMON_KEY=planted-caller", "OTHER_PROGRAMS_VARIABLE=planted-caller")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("bundle of %s: %v\n%s", user, err, out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the bundle of %s: %v, %v, want mode 0600", user, info.Mode(), err)
	}
	return unzip(t, file), string(out)
}

// unzip returns the files of an archive.
func unzip(t *testing.T, path string) map[string]string {
	t.Helper()
	archive, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	files := map[string]string{}
	for _, file := range archive.File {
		r, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		files[file.Name] = string(text)
	}
	return files
}

const plantedTemplate = `
variable "credential" {
  type      = string
  sensitive = true
}
data "coder_parameter" "passphrase" {
  name = "passphrase"
  type = "string"
}
resource "coder_env" "planted" {
  agent_id = coder_agent.main.id
  name     = "DEPLOY_KEY"
  value    = "planted-environment${sha256(var.credential) == "" ? data.coder_parameter.passphrase.value : ""}"
}
resource "coder_script" "chatty" {
  agent_id     = coder_agent.main.id
  display_name = "Chatty"
  run_on_start = true
  script       = "echo API_TOKEN=planted-log-token; echo https://ada:planted-log-password@git.example.com/x; echo end of the script # planted-script"
}
resource "coder_app" "planted" {
  agent_id = coder_agent.main.id
  slug     = "planted"
  command  = "curl -u planted-app:x http://127.0.0.1"
}
`
