package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
)

// preparePlain is like prepare with a server that does not run as root. Its folders are not below the test's private ones.
func preparePlain(t *testing.T, args ...string) *deployment {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "cmplain")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	d := &deployment{server: newServer(dir), t: t}
	d.args, d.program = args, filepath.Join(dir, "coder")
	t.Cleanup(d.keepLogs)
	t.Cleanup(d.cleanup)
	if out, err := exec.CommandContext(t.Context(), "cp", coder, d.program).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v\n%s", err, out)
	}
	if err := os.Mkdir(filepath.Join(dir, "home-admin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		plain, err := user.Lookup("games") // PostgreSQL insists on a name
		if err != nil {
			t.Fatal(err)
		}
		uid, err := strconv.Atoi(plain.Uid)
		if err != nil {
			t.Fatal(err)
		}
		d.account = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
		for _, name := range []string{dir, filepath.Join(dir, "home-admin")} {
			if err := os.Chown(name, uid, uid); err != nil {
				t.Fatal(err)
			}
		}
	}
	return d
}

// all runs the command line as the first user and returns all of its output.
func (d *deployment) all(args ...string) (string, error) {
	d.t.Helper()
	stdout, stderr, err := d.try(args...)
	return stdout + stderr, err
}

const harmless = `resource "terraform_data" "a" {
  provisioner "local-exec" {
    command = "echo it-ran"
  }
}
`

// TestUnconfined runs a server that is not root, on a machine without bubblewrap: its provisioners run templates while it has one
// user, and no longer when there is a second, unless a flag allows it. An external provisioner does not even start.
func TestUnconfined(t *testing.T) {
	t.Parallel()
	d := preparePlain(t)
	bin := filepath.Join(d.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "bwrap"), []byte("#!/bin/sh\necho no namespaces here >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	d.extra = append(d.extra, "PATH="+bin+":"+os.Getenv("PATH"), "CODER_PROVISIONER_DAEMON_PSK="+provisionerKey)
	d.begin()
	d.push("one", harmless)
	if log, err := d.all("create", "dev", "-t", "one", "-y"); err != nil || !strings.Contains(log, "it-ran") {
		t.Errorf("the single user's build: %v\n%s", err, log)
	}

	d.member("bob")
	dir := filepath.Join(d.dir, "template-one")
	for what, args := range map[string][]string{
		"an import": {"templates", "push", "one", "-d", dir, "-y"},
		"a build":   {"stop", "dev", "-y"},
	} {
		log, err := d.all(args...)
		if err == nil || strings.Contains(log, "it-ran") {
			t.Errorf("%s runs on a server with two users: %s", what, log)
		}
		for _, reason := range []string{"templates cannot be confined on this machine", "no namespaces here", "this server has several users", "--provisioner-isolation=none"} {
			if !strings.Contains(log, reason) {
				t.Errorf("%s: the error lacks %q: %s", what, reason, log)
			}
		}
	}

	refused := d.prepareProvisioner("refused", "--provisioner-isolation", "auto")
	refused.begin()
	if code := refused.ends(); code != 1 {
		t.Errorf("the provisioner ended with status %d", code)
	}
	for _, reason := range []string{"templates cannot be confined on this machine", "no namespaces here", "--provisioner-isolation=none"} {
		if text := refused.text(); !strings.Contains(text, reason) {
			t.Errorf("the provisioner's error lacks %q: %s", reason, text)
		}
	}
	allowed := d.provisioner("allowed") // with isolation none
	signal(t, allowed.cmd.Process.Pid, syscall.SIGTERM)
	allowed.ends()

	if err := d.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	d.args = append(d.args, "--provisioner-isolation=none")
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	d.coder("stop", "dev", "-y")
	d.coder("start", "dev", "-y")
}

// TestTemplateAttacksDatabase runs a template that attacks the PostgreSQL of a server that is not root: both run as the same account. The
// same commands outside of the sandbox show that the attack would work, and afterwards the server still reaches its database.
func TestTemplateAttacksDatabase(t *testing.T) {
	t.Parallel()
	d := preparePlain(t)
	d.begin()
	config := filepath.Join(d.dir, "config-admin")
	data := filepath.Join(config, "postgres", "data")
	process := postmaster(t, config)
	attacks := map[string]string{
		"the socket":             "curl -s --max-time 2 --unix-socket " + data + "/.s.PGSQL.5432 http://x/; test $? != 7",
		"the data folder":        "ls " + data,
		"the password":           "cat " + filepath.Join(config, "postgres", "password"),
		"the key of states":      "cat " + filepath.Join(config, "state-encryption.key"),
		"the process":            fmt.Sprintf("kill -0 %d", process),
		"the process's folder":   fmt.Sprintf("ls /proc/%d/cwd/", process),
		"another in its place":   fmt.Sprintf("touch %s/postmaster.opts", data),
		"the socket by its name": fmt.Sprintf("curl -s --max-time 2 --unix-socket /proc/%d/cwd/.s.PGSQL.5432 http://x/; test $? != 7", process),
	}
	var script strings.Builder
	for what, command := range attacks {
		fmt.Fprintf(&script, "if ( %s ) >/dev/null 2>&1; then echo \"REACHED <%s>\"; fi\n", command, what)
	}
	script.WriteString("echo attack-ended\n")
	outside := exec.CommandContext(t.Context(), "sh", "-c", script.String())
	outside.Dir, outside.SysProcAttr = "/", &syscall.SysProcAttr{Credential: d.account}
	out, err := outside.CombinedOutput()
	if err != nil {
		t.Fatalf("outside: %v\n%s", err, out)
	}
	for what := range attacks {
		if !strings.Contains(string(out), "REACHED <"+what+">") {
			t.Errorf("the account itself does not reach %s: the attack is wrong", what)
		}
	}

	dir := filepath.Join(d.dir, "template-attack")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "attack.sh"), []byte(script.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	d.push("attack", strings.ReplaceAll(harmless, "echo it-ran", "sh ./attack.sh"))
	log, err := d.all("create", "dev", "-t", "attack", "-y")
	if err != nil || !strings.Contains(log, "attack-ended") {
		t.Fatalf("the attack did not run: %v\n%s", err, log)
	}
	if strings.Contains(log, "REACHED") {
		t.Errorf("the template reached the database: %s", log)
	}

	if listens(t, process) {
		t.Error("PostgreSQL listens on TCP")
	}
	if !listens(t, d.cmd.Process.Pid) {
		t.Error("the server does not listen on TCP: the question is wrong")
	}
	address, err := embedded.RunningURL(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := askDatabase(t.Context(), address); err != nil {
		t.Errorf("with the password: %v", err)
	}
	stranger, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	stranger.User = url.User(stranger.User.Username())
	if err := askDatabase(t.Context(), stranger.String()); err == nil {
		t.Error("PostgreSQL asks for no password")
	}
	d.coder("stop", "dev", "-y")
	if out := d.coder("list"); !strings.Contains(out, "dev") {
		t.Errorf("list: %s", out)
	}
}

// askDatabase connects as the server does.
func askDatabase(ctx context.Context, address string) error {
	db, err := database.Open(ctx, address, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.HasUsers(ctx)
	return err
}

// listens reports whether a process listens on TCP.
func listens(t *testing.T, pid int) bool {
	t.Helper()
	inodes := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 9 && fields[3] == "0A" {
				inodes["socket:["+fields[9]+"]"] = true
			}
		}
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && inodes[to] {
			return true
		}
	}
	return false
}
